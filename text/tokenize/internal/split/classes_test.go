package split

import (
	"testing"
	"unicode"
)

// goClass returns a character's class by Go's own tables.
func goClass(r rune) byte {
	var class byte
	for _, c := range []struct {
		in  bool
		bit byte
	}{
		{unicode.IsLetter(r), letter},
		{unicode.IsNumber(r), number},
		{unicode.Is(unicode.White_Space, r), space},
		{unicode.In(r, unicode.Lu, unicode.Lt, unicode.Lm, unicode.Lo, unicode.M), upper},
		{unicode.In(r, unicode.Ll, unicode.Lm, unicode.Lo, unicode.M), lower},
		{!unicode.IsLetter(r) && !unicode.IsNumber(r) && !unicode.Is(unicode.White_Space, r), other},
		{r == '\r' || r == '\n', newline},
	} {
		if c.in {
			class |= c.bit
		}
	}
	return class
}

func classOf(c *classes, r rune) byte {
	class, _ := c.at([]byte(string(r)), 0)
	return class
}

// The reference's Unicode is newer than Go's. A character may have got its class between the two, and a few have
// changed it. So the tables agree except for characters that one of them does not have, and a handful of others.
func TestClassesAgreeWithGo(t *testing.T) {
	c := newClasses([]byte(classRuns))
	letters, changed := 0, 0
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if 0xd800 <= r && r < 0xe000 { // surrogates
			continue
		}
		got, want := classOf(c, r), goClass(r)
		if got&letter != 0 {
			letters++
		}
		if got != want && got != other && want != other {
			changed++
			t.Logf("%U: class %b, by Go's Unicode %s it is %b", r, got, unicode.Version, want)
		}
	}
	if changed > 10 {
		t.Errorf("%d characters have another class than in Go", changed)
	}
	if letters != 141028 {
		t.Errorf("%d letters, the reference's Unicode has 141028", letters)
	}
}

func TestClassOfInvalidText(t *testing.T) {
	c := newClasses([]byte(classRuns))
	for a := range 256 {
		for _, rest := range []string{"", "a", "\x80", "\xff", "\x80\x80", "\xff\xff\xff", "\x80\x80\x80\x80"} {
			text := string([]byte{byte(a)}) + rest
			if class, size := c.at([]byte(text), 0); size < 1 || size > len(text) ||
				class&(letter|number|space|other) == 0 {
				t.Errorf("%q: class %b, length %d", text, class, size)
			}
		}
	}
}
