package split

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestDigitsDivideTextsOfTheirOwn: the pieces are those of r50k for each text between numeric characters.
func TestDigitsDivideTextsOfTheirOwn(t *testing.T) {
	digits, plain := New(R50kDigits), New(R50k)
	r := rand.New(rand.NewPCG(1, 2))
	parts := []string{
		"a", "The", " ", "  ", "\n", "7", "42", "½", "Ⅷ", "٣", "\u3007", "!", "'s", "'", "ä", "世界", "\u2003", "\x80",
		"\xe2\x85", "𖭀", "a long run of letters and spaces   ",
	}
	for range 4000 {
		var text []byte
		for range r.IntN(30) {
			text = append(text, parts[r.IntN(len(parts))]...)
		}
		var want []int
		for from := 0; from < len(text); {
			if n := digits.classes.numericAt(text, from); n > 0 {
				from += n
				want = append(want, from)
				continue
			}
			end := from
			for end < len(text) && digits.classes.numericAt(text, end) == 0 {
				end++
			}
			for _, e := range piecesInBlocks(plain, text[from:end]) {
				want = append(want, from+e)
			}
			from = end
		}
		if got := piecesInBlocks(digits, text); !slices.Equal(got, want) {
			t.Fatalf("%q: got %d, want %d", text, got, want)
		}
	}
}
