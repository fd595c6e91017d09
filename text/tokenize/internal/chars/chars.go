// Package chars has the characters that parts of Hugging Face's tokenizers change, leave out or divide at.
//
// The tables come from the library itself (testdata/make.py), because its parts are of several Unicode versions.
package chars

import (
	_ "embed"
	"encoding/binary"
	"unicode/utf8"
)

//go:embed tables.bin
var tables []byte

// Set is a set of characters.
type Set uint16

// The sets, in the order of tables.bin.
const (
	Control     Set = 1 << iota // BertNormalizer leaves it out with clean_text
	Blank                       // BertNormalizer makes it a space with clean_text
	Ideograph                   // BertNormalizer puts spaces around it with handle_chinese_chars
	Accent                      // BertNormalizer leaves it out with strip_accents
	Mark                        // StripAccents leaves it out
	Punctuation                 // BertPreTokenizer makes it a part of its own
	Space                       // BertPreTokenizer divides at it and leaves it out
	Digit                       // Digits divides at it
	Word                        // Whitespace has it in words

	cased   // it has a lower case
	numSets = iota - 1
)

// Table has the sets of each character. It never changes and is safe for concurrent use. It takes 2.2 MiB.
type Table struct {
	sets  []Set // by character
	lower map[rune][]byte
}

// New returns the table.
func New() *Table {
	t := &Table{sets: make([]Set, utf8.MaxRune+1), lower: map[rune][]byte{}}
	rest := tables
	number := func() int {
		value, n := binary.Uvarint(rest)
		rest = rest[n:]
		return int(value)
	}
	for i := range numSets {
		at := 0
		for range number() {
			at += number()
			for end := at + number(); at < end; at++ {
				t.sets[at] |= 1 << i
			}
		}
	}
	at := 0
	for range number() {
		at += number()
		n := number()
		t.sets[at] |= cased
		t.lower[rune(at)], rest = rest[:n:n], rest[n:]
	}
	return t
}

// Of returns the sets of a character.
func (t *Table) Of(r rune) Set { return t.sets[r] }

// AppendLower appends the lower case of a text, which is UTF-8, character by character.
func (t *Table) AppendLower(dst, text []byte) []byte {
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		if t.sets[r]&cased != 0 {
			dst = append(dst, t.lower[r]...)
		} else {
			dst = append(dst, text[:n]...)
		}
		text = text[n:]
	}
	return dst
}

// Remove appends a text, which is UTF-8, without the characters of some sets.
func (t *Table) Remove(dst, text []byte, of Set) []byte {
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		if t.sets[r]&of == 0 {
			dst = append(dst, text[:n]...)
		}
		text = text[n:]
	}
	return dst
}
