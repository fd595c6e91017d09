package pipeline

import (
	"unicode/utf8"

	"millrace/text/tokenize/internal/regex"
)

// alphabet returns the characters that stand for bytes in byte-level vocabularies: printable ones for themselves, and
// U+0100 on for the others in their order. See bytes_char in tokenizers.
func alphabet() (of [256]rune) {
	next := rune(0x100)
	for b := range of {
		of[b] = rune(b)
		if !(b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae) {
			of[b] = next
			next++
		}
	}
	return of
}

// Alphabet returns the bytes for which characters stand in byte-level vocabularies.
func Alphabet() map[rune]byte {
	of := make(map[rune]byte, 256)
	for b, r := range alphabet() {
		of[r] = byte(b)
	}
	return of
}

// SpellBytes writes the characters that stand for the bytes of a text.
func SpellBytes() Normalizer {
	of := alphabet()
	return func(dst, text []byte) []byte {
		for _, b := range text {
			dst = utf8.AppendRune(dst, of[b])
		}
		return dst
	}
}

// appendSpelt appends the bytes for which the characters of a token stand, and the other characters.
func appendSpelt(dst, token []byte, of map[rune]byte) []byte {
	for len(token) > 0 {
		r, n := utf8.DecodeRune(token)
		if b, ok := of[r]; ok {
			dst = append(dst, b)
		} else {
			dst = append(dst, token[:n]...)
		}
		token = token[n:]
	}
	return dst
}

// ByteLevel divides a text and writes the characters that stand for the bytes of the parts.
type ByteLevel struct {
	prefix bool
	at     *regex.Expression
	spell  Normalizer
}

// NewByteLevel returns a ByteLevel. prefix: a text gets a space at its beginning, unless it has one. The matches of at,
// and the texts between them, are parts; nil: the text is the part.
func NewByteLevel(prefix bool, at *regex.Expression) ByteLevel {
	return ByteLevel{prefix, at, SpellBytes()}
}

// Split divides a text. See pre_tokenizers/byte_level.rs of tokenizers 0.23.
func (b ByteLevel) Split(text []byte, _ bool, s *Scratch, do func(part []byte)) {
	level := s.level
	out := s.rooms[level][:0]
	if b.prefix && len(text) > 0 && text[0] != ' ' {
		out = append(append(out, ' '), text...)
		text = out
	}
	n := len(out)
	for pos := 0; pos < len(text); {
		end := len(text)
		if b.at != nil {
			end = b.at.Next(text, pos)
		}
		out = b.spell(out[:n], text[pos:end])
		do(out[n:])
		pos = end
	}
	if cap(out) <= scratchMax {
		s.rooms[level] = out
	}
}
