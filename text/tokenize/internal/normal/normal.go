// Package normal brings text into normal forms of Unicode. Python's unicodedata has those of its current Unicode, and
// Hugging Face's tokenizers have those of Unicode 10.
//
// golang.org/x/text has the tables of a later Unicode. Its own Append inserts a joiner into runs of more than 30
// combining marks ("stream-safe text"), which no tokenizer does. So this package decomposes and composes the segments
// that are not in normal form.
package normal

import (
	"cmp"
	"slices"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Span returns the length of a prefix of text that is surely in normal form C. The rest can be normalised by itself.
func Span(text []byte) int { return norm.NFC.QuickSpan(text) }

// CurrentC appends normal form C of today's Unicode of text to dst. Bytes that are not UTF-8 stay as they are.
func CurrentC(dst, text []byte) []byte {
	return (&composer{form: norm.NFC, current: true}).text(dst, text)
}

// C appends normal form C of Unicode 10, as [CurrentC] does.
func C(dst, text []byte) []byte { return appendForm(dst, text, norm.NFC) }

// D appends normal form D of Unicode 10, as [CurrentC] does.
func D(dst, text []byte) []byte { return appendForm(dst, text, norm.NFD) }

// KC appends normal form KC of Unicode 10, as [CurrentC] does.
func KC(dst, text []byte) []byte { return appendForm(dst, text, norm.NFKC) }

// KD appends normal form KD of Unicode 10, as [CurrentC] does.
func KD(dst, text []byte) []byte { return appendForm(dst, text, norm.NFKD) }

func appendForm(dst, text []byte, form norm.Form) []byte {
	return (&composer{form: form}).text(dst, text)
}

// text appends the form of a text.
func (c *composer) text(dst, text []byte) []byte {
	for len(text) > 0 {
		n := c.form.QuickSpan(text)
		dst = append(dst, text[:n]...)
		text = text[n:]
		n = c.segment(text)
		dst = c.append(dst, text[:n])
		text = text[n:]
	}
	return dst
}

// segment returns the end of the first segment of text. Its characters may combine with each other, and with no later
// character.
func (c *composer) segment(text []byte) int {
	for i := 0; i < len(text); {
		p := c.form.Properties(text[i:])
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

// composer brings segments into a form.
type composer struct {
	form    norm.Form
	current bool // of Unicode; else 10
	chars   []char
	bytes   []byte
}

// append appends a segment after decomposing it, sorting its marks into canonical order, and composing it again for the
// forms C and KC.
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
	if c.form == norm.NFC || c.form == norm.NFKC {
		c.compose()
	}
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
		apart := norm.NFD
		if c.form == norm.NFKC || c.form == norm.NFKD {
			apart = norm.NFKD
		}
		c.bytes = append(c.bytes[:0], segment[:size]...)
		if c.current || !composedLater(r) {
			c.bytes = apart.Append(c.bytes[:0], segment[:size]...) // few marks, so no joiner is inserted
		}
		for rest := c.bytes; len(rest) > 0; {
			r, n := utf8.DecodeRune(rest)
			c.chars = append(c.chars, char{r: r, class: c.classOf(r, rest), valid: true})
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
	return r, n+size == len(c.bytes) && (c.current || !composedLater(r))
}

// classOf returns the combining class of a character, with which text begins.
func (c *composer) classOf(r rune, text []byte) uint8 {
	if !c.current && markedLater(r) {
		return 0
	}
	return norm.NFD.Properties(text).CCC()
}
