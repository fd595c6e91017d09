// Package nfc brings text into Unicode's normal form C, as Python's unicodedata does.
//
// golang.org/x/text has the tables. Its own Append inserts a joiner into runs of more than 30 combining marks
// ("stream-safe text"), which no tokenizer does. So this package composes the segments that are not in normal form.
package nfc

import (
	"cmp"
	"slices"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Span returns the length of a prefix of text that is surely in normal form. The rest can be normalised by itself.
func Span(text []byte) int { return norm.NFC.QuickSpan(text) }

// Append appends the normal form of text to dst. Bytes that are not UTF-8 stay as they are.
func Append(dst, text []byte) []byte {
	var c composer
	for len(text) > 0 {
		n := Span(text)
		dst = append(dst, text[:n]...)
		text = text[n:]
		n = segment(text)
		dst = c.append(dst, text[:n])
		text = text[n:]
	}
	return dst
}

// segment returns the end of the first segment of text. Its characters may combine with each other, and with no later
// character.
func segment(text []byte) int {
	for i := 0; i < len(text); {
		p := norm.NFC.Properties(text[i:])
		if i > 0 && p.BoundaryBefore() {
			return i
		}
		i += max(p.Size(), 1)
	}
	return len(text)
}

// char is a character or, if size is 0, a byte that is not UTF-8.
type char struct {
	r     rune
	class uint8 // canonical combining class
	valid bool
}

// composer has the scratch of Append.
type composer struct {
	chars []char
	bytes []byte
}

// append appends a segment after decomposing it, sorting its marks into canonical order, and composing it again.
func (c *composer) append(dst, segment []byte) []byte {
	c.decompose(segment)
	for from := 0; from < len(c.chars); from++ {
		to := from
		for to < len(c.chars) && c.chars[to].class > 0 {
			to++
		}
		slices.SortStableFunc(c.chars[from:to], func(a, b char) int { return cmp.Compare(a.class, b.class) })
		from = to
	}
	c.compose()
	for _, x := range c.chars {
		if x.valid {
			dst = utf8.AppendRune(dst, x.r)
		} else {
			dst = append(dst, byte(x.r))
		}
	}
	return dst
}

func (c *composer) decompose(segment []byte) {
	c.chars = c.chars[:0]
	for len(segment) > 0 {
		r, size := utf8.DecodeRune(segment)
		if r == utf8.RuneError && size == 1 {
			c.chars = append(c.chars, char{r: rune(segment[0])})
			segment = segment[1:]
			continue
		}
		// One character has few marks, so no joiner is inserted.
		c.bytes = norm.NFD.Append(c.bytes[:0], segment[:size]...)
		for rest := c.bytes; len(rest) > 0; {
			r, n := utf8.DecodeRune(rest)
			c.chars = append(c.chars, char{r: r, class: norm.NFD.Properties(rest).CCC(), valid: true})
			rest = rest[n:]
		}
		segment = segment[size:]
	}
}

// compose merges each character with the last starter before it, unless a character between them blocks it (The Unicode
// Standard, D117).
func (c *composer) compose() {
	starter, last := -1, uint8(0)
	out := c.chars[:0]
	for _, x := range c.chars {
		if starter >= 0 && (last == 0 || last < x.class) {
			if r, ok := c.pair(out[starter], x); ok {
				out[starter].r = r
				continue
			}
		}
		last = x.class
		if x.class == 0 {
			starter = len(out)
		}
		out = append(out, x)
	}
	c.chars = out
}

// pair returns the character that two compose to.
func (c *composer) pair(a, b char) (rune, bool) {
	if !a.valid || !b.valid {
		return 0, false
	}
	c.bytes = utf8.AppendRune(utf8.AppendRune(c.bytes[:0], a.r), b.r)
	n := len(c.bytes)
	c.bytes = norm.NFC.Append(c.bytes, c.bytes[:n]...)
	r, size := utf8.DecodeRune(c.bytes[n:])
	return r, n+size == len(c.bytes)
}
