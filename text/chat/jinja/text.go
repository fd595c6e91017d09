package jinja

import (
	"strings"
	"unicode"
)

// Text is a text whose characters know their origin. Two texts are equal if their characters are, even if their origins
// differ.
type Text []uint64

const (
	runeBits uint64 = 1<<21 - 1
	// generated marks the characters of {% generation %} blocks.
	generated uint64 = 1 << 21
	// turnAt is the first bit of the turn that wrote a character, as in Rendered.Turn.
	turnAt = 22
	// originAt is the first bit of the value that a character comes from: 0 is the template's own text.
	originAt = 43
	turnBits = (1<<originAt - 1) &^ (1<<turnAt - 1)
	// mostOrigin is the largest origin.
	mostOrigin = 1<<(64-originAt) - 1
)

// write appends a text to the output of the turn.
func (x *rendering) write(out *Text, t Text) {
	first := len(*out)
	*out = append(*out, t...)
	if x.turn == 0 {
		return
	}
	for i := first; i < len(*out); i++ {
		(*out)[i] = (*out)[i]&^turnBits | x.turn
	}
}

// own returns a text of the template.
func own(s string) Text { return mark(s, 0) }

// mark returns a text whose characters have the bits.
func mark(s string, bits uint64) Text {
	t := make(Text, 0, len(s))
	for _, r := range s {
		t = append(t, uint64(r)|bits)
	}
	return t
}

// String returns the characters.
func (t Text) String() string {
	var b strings.Builder
	b.Grow(len(t))
	for i := range t {
		b.WriteRune(t.at(i))
	}
	return b.String()
}

func (t Text) at(i int) rune { return rune(t[i] & runeBits) }

// find returns the place of the first x from place `from` on, -1 if there is none.
func (t Text) find(x Text, from int) int {
	for i := from; i+len(x) <= len(t); i++ {
		if t.hasAt(x, i) {
			return i
		}
	}
	return -1
}

// findLast returns the place of the last x, -1 if there is none.
func (t Text) findLast(x Text) int {
	for i := len(t) - len(x); i >= 0; i-- {
		if t.hasAt(x, i) {
			return i
		}
	}
	return -1
}

// hasAt reports whether x is at place i.
func (t Text) hasAt(x Text, i int) bool {
	if i < 0 || i+len(x) > len(t) {
		return false
	}
	for k := range x {
		if (t[i+k]^x[k])&runeBits != 0 {
			return false
		}
	}
	return true
}

// trimmed returns the text without characters at its ends. A nil set trims white space.
func (t Text) trimmed(set Text, left, right bool) Text {
	drop := func(r rune) bool {
		if set == nil {
			return isSpace(r)
		}
		return set.find(Text{uint64(r)}, 0) >= 0
	}
	for left && len(t) > 0 && drop(t.at(0)) {
		t = t[1:]
	}
	for right && len(t) > 0 && drop(t.at(len(t)-1)) {
		t = t[:len(t)-1]
	}
	return t
}

// isWord reports whether the text has letters, digits, - and _ alone.
func (t Text) isWord() bool {
	for i := range t {
		if r := t.at(i); r != '_' && r != '-' && !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			return false
		}
	}
	return true
}

// isSpace reports whether Python's str.isspace is true for a character.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

// split cuts the text at each sep, at most n times; n < 0: at all. A nil sep is a run of white space.
func (t Text) split(sep Text, n int) (out []Text) {
	if sep != nil {
		for ; n != 0; n-- {
			i := t.find(sep, 0)
			if i < 0 {
				break
			}
			out, t = append(out, t[:i]), t[i+len(sep):]
		}
		return append(out, t)
	}
	for t = t.trimmed(nil, true, false); len(t) > 0; n-- {
		end := 0
		for end < len(t) && !isSpace(t.at(end)) {
			end++
		}
		if n == 0 {
			end = len(t)
		}
		out, t = append(out, t[:end]), t[end:].trimmed(nil, true, false)
	}
	return out
}

// splitLast cuts the text at the last n places of sep.
func (t Text) splitLast(sep Text, n int) []Text {
	var back []Text
	for ; n != 0; n-- {
		i := t.findLast(sep)
		if i < 0 {
			break
		}
		back, t = append(back, t[i+len(sep):]), t[:i]
	}
	out := []Text{t}
	for i := len(back) - 1; i >= 0; i-- {
		out = append(out, back[i])
	}
	return out
}

// lines returns the lines without their ends.
func (t Text) lines(keep bool) (out []Text) {
	for len(t) > 0 {
		i := 0
		for i < len(t) && !isLineEnd(t.at(i)) {
			i++
		}
		end := i
		if i < len(t) {
			if end++; t.at(i) == '\r' && end < len(t) && t.at(end) == '\n' {
				end++
			}
		}
		if keep {
			i = end
		}
		out, t = append(out, t[:i]), t[end:]
	}
	return out
}

func isLineEnd(r rune) bool { return strings.ContainsRune("\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029", r) }

// mapped returns the text with each character changed. The characters keep their origin.
func (t Text) mapped(change func(i int, r rune) string) Text {
	out := make(Text, 0, len(t))
	for i := range t {
		out = append(out, mark(change(i, t.at(i)), t[i]&^runeBits)...)
	}
	return out
}

func (t Text) upper() Text {
	return t.mapped(func(_ int, r rune) string { return strings.ToUpper(string(r)) })
}
func (t Text) lower() Text {
	return t.mapped(func(_ int, r rune) string { return strings.ToLower(string(r)) })
}

// title begins each word with a capital; capitalize begins the text alone.
func (t Text) title(words bool) Text {
	return t.mapped(func(i int, r rune) string {
		if i == 0 || words && !unicode.IsLetter(t.at(i-1)) {
			return string(unicode.ToTitle(r))
		}
		return strings.ToLower(string(r))
	})
}
