package mixing

import (
	"testing"
)

// FuzzParseWeight reads weights. The text of a weight is a weight of the same value.
func FuzzParseWeight(f *testing.F) {
	for _, s := range []string{"0.3", "1", "1e-9", "12345678901234567890", "+1", "0x1", "1/3", ".5", "5.", "-0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		w, err := ParseWeight(text)
		if err != nil {
			return
		}
		if again, err := ParseWeight(w.String()); err != nil || again.String() != w.String() {
			t.Fatalf("%q is %s, then %s: %v", text, w, again, err)
		}
	})
}
