package chars_test

import (
	"testing"

	"millrace/text/tokenize/internal/chars"
)

// TestTable has a character of each set, and one beside it.
func TestTable(t *testing.T) {
	table := chars.New()
	for r, want := range map[rune]chars.Set{
		0: chars.Control, 0x200b: chars.Control, '\t': chars.Blank | chars.Space, ' ': chars.Space, 'a': 0,
		0x4e00: chars.Ideograph, 0x3042: 0, 0x0301: chars.Accent | chars.Mark, 0x0903: chars.Mark,
		'$': chars.Punctuation, 0x2014: chars.Punctuation, 0x10ffff: 0, 0xe000: chars.Control,
	} {
		if got := table.Of(r) & (1<<7 - 1); got != want {
			t.Errorf("%U: got %b, want %b", r, got, want)
		}
	}
	if got := string(table.AppendLower(nil, []byte("AÄİΣ文ǅ"))); got != "aäi\u0307σ文ǆ" {
		t.Errorf("the lower case is %q", got)
	}
}
