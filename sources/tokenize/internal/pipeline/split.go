package pipeline

import (
	"bytes"
	"unicode/utf8"
)

// Metaspace writes a character in place of spaces, and divides the text before each of them.
type Metaspace struct {
	Replacement rune
	Prepend     Prepends
	Divides     bool
}

// Prepends tells which texts get the character at their beginning, unless they have it.
type Prepends uint8

// No text, all texts, or those at the beginning of a document get the character.
const (
	Never Prepends = iota
	Always
	First
)

// Split divides a text. See pre_tokenizers/metaspace.rs of tokenizers 0.23.
func (m Metaspace) Split(text []byte, first bool, s *Scratch, do func(part []byte)) {
	mark := utf8.AppendRune(nil, m.Replacement)
	out := s.part[:0]
	if len(text) > 0 && text[0] != ' ' && !bytes.HasPrefix(text, mark) &&
		(m.Prepend == Always || m.Prepend == First && first) {
		out = append(out, mark...)
	}
	for _, b := range text {
		if b == ' ' {
			out = append(out, mark...)
		} else {
			out = append(out, b)
		}
	}
	if cap(out) <= scratchMax {
		s.part = out
	}
	for m.Divides && len(out) > 0 {
		next := bytes.Index(out[1:], mark)
		if next < 0 {
			break
		}
		do(out[:1+next])
		out = out[1+next:]
	}
	if len(out) > 0 {
		do(out)
	}
}

// SplitAfter divides a text behind each occurrence of a text, which is not empty.
type SplitAfter string

// Split divides a text.
func (p SplitAfter) Split(text []byte, _ bool, _ *Scratch, do func(part []byte)) {
	for {
		i := bytes.Index(text, []byte(p))
		if i < 0 {
			break
		}
		do(text[:i+len(p)])
		text = text[i+len(p):]
	}
	if len(text) > 0 {
		do(text)
	}
}
