package pipeline

import (
	"bytes"
	"unicode/utf8"

	"millrace/text/tokenize/internal/chars"
)

// Metaspace writes a character in place of spaces, and divides the text before each of them.
type Metaspace struct {
	Replacement rune
	Prepend     Prepends
	Divides     bool
}

// Prepends says which texts get the character at their beginning, unless they have it.
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
	level := s.level
	out := s.rooms[level][:0]
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
		s.rooms[level] = out
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

// Finder finds the matches of a pattern.
type Finder interface {
	// Find returns the start and the end of the first match in text from i on. Without a match both are len(text).
	Find(text []byte, i int) (start, end int)
}

// Literal is a text to search for. It is not empty.
type Literal string

// Find implements Finder.
func (l Literal) Find(text []byte, i int) (start, end int) {
	if at := bytes.Index(text[i:], []byte(l)); at >= 0 {
		return i + at, i + at + len(l)
	}
	return len(text), len(text)
}

// member finds each character of a set.
type member struct {
	table *chars.Table
	set   chars.Set
}

// Find implements Finder.
func (m member) Find(text []byte, i int) (start, end int) {
	for i < len(text) {
		r, n := utf8.DecodeRune(text[i:])
		if m.table.Of(r)&m.set != 0 {
			return i, i + n
		}
		i += n
	}
	return i, i
}

// Behavior says how matches and the texts between them become parts.
type Behavior string

// The behaviours, with their names in tokenizer.json.
const (
	Removed            Behavior = "Removed"
	Isolated           Behavior = "Isolated"
	MergedWithPrevious Behavior = "MergedWithPrevious"
	MergedWithNext     Behavior = "MergedWithNext"
	Contiguous         Behavior = "Contiguous"
)

// IsKnown reports whether b is one of the behaviours.
func (b Behavior) IsKnown() bool {
	switch b {
	case Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous:
		return true
	}
	return false
}

// At divides a text at the matches of a pattern. See NormalizedString::split in tokenizers 0.23.
type At struct {
	Find     Finder
	Behavior Behavior
	Invert   bool // matches and the texts between them change places
}

// Split divides a text.
func (a At) Split(text []byte, _ bool, _ *Scratch, do func(part []byte)) {
	m := merging{behavior: a.Behavior, text: text, do: do}
	for pos := 0; pos < len(text); {
		start, end := a.Find.Find(text, pos)
		if pos < start {
			m.add(pos, start, a.Invert)
		}
		if start < end {
			m.add(start, end, !a.Invert)
		}
		pos = end
	}
	m.flush()
}

// merging joins the pieces of a text into parts.
type merging struct {
	behavior   Behavior
	text       []byte
	do         func(part []byte)
	start, end int  // the part that may still grow
	isMatch    bool // its last piece is a match
}

// add takes the next piece of the text.
func (m *merging) add(start, end int, isMatch bool) {
	joins := false
	switch m.behavior {
	case Contiguous:
		joins = isMatch == m.isMatch
	case MergedWithPrevious:
		joins = isMatch && !m.isMatch
	case MergedWithNext:
		joins = m.isMatch && !isMatch
	}
	if !joins {
		m.flush()
		m.start = start
	}
	m.end, m.isMatch = end, isMatch
}

// flush ends the part that may still grow.
func (m *merging) flush() {
	if m.start < m.end && !(m.behavior == Removed && m.isMatch) {
		m.do(m.text[m.start:m.end])
	}
	m.start = m.end
}

// Chars divides a text into parts of this number of characters.
type Chars int

// Split divides a text.
func (n Chars) Split(text []byte, _ bool, _ *Scratch, do func(part []byte)) {
	for len(text) > 0 {
		end := 0
		for range n {
			if end == len(text) {
				break
			}
			_, size := utf8.DecodeRune(text[end:])
			end += size
		}
		do(text[:end])
		text = text[end:]
	}
}
