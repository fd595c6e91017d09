package pretokenize

import (
	"unicode/utf8"

	"millrace/text/tokenize/internal/chars"
)

// runs divides a text into characters of a set and the texts between them.
type runs struct {
	name  string
	table *chars.Table
	set   chars.Set
	each  bool // each character of the set is a part, else a run of them is
}

// Digits divides at digits, one by one or in runs.
func Digits(table *chars.Table, each bool) Stage { return runs{"digits", table, chars.Digit, each} }

// Punctuation divides at punctuation marks, one by one or in runs.
func Punctuation(table *chars.Table, each bool) Stage {
	return runs{"punctuation", table, chars.Punctuation, each}
}

func (s runs) String() string {
	if s.each {
		return "each of " + s.name
	}
	return "runs of " + s.name
}

// Next implements Stage.
func (s runs) Next(t []byte, i int) int {
	r, n := utf8.DecodeRune(t[i:])
	of := s.table.Of(r)&s.set != 0
	for i += n; i < len(t) && !(of && s.each); i += n {
		if r, n = utf8.DecodeRune(t[i:]); (s.table.Of(r)&s.set != 0) != of {
			break
		}
	}
	return i
}

// ByteDigits divides behind ByteLevel at digits, one by one or in runs. There, the character of a byte from 0xa1 to
// 0xff is that of Latin-1, so ² and five others are digits.
type ByteDigits struct{ Each bool }

func (s ByteDigits) String() string {
	if s.Each {
		return "each of the digits of bytes"
	}
	return "runs of digits of bytes"
}

// Next implements Stage.
func (s ByteDigits) Next(t []byte, i int) int {
	of := isByteDigit(t[i])
	for i++; i < len(t) && !(of && s.Each) && isByteDigit(t[i]) == of; i++ {
	}
	return i
}

// Whole leaves a text whole.
type Whole struct{}

func (Whole) String() string { return "whole texts" }

// Next implements Stage.
func (Whole) Next(t []byte, _ int) int { return len(t) }

func isByteDigit(b byte) bool {
	switch b {
	case '²', '³', '¹', '¼', '½', '¾':
		return true
	}
	return b >= '0' && b <= '9'
}
