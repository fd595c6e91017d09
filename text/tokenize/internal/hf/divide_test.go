package hf

import "testing"

// TestSingleWordsEndAsInTheLibrary has characters of words of Unicode 16, which Go's tables lack, and marks that are
// none. tokenizers 0.23.3 decides so.
func TestSingleWordsEndAsInTheLibrary(t *testing.T) {
	d := NewDivider([]Added{{ID: 7, Content: "quick", SingleWord: true}}, nil)
	for text, want := range map[string]bool{
		"quick": true, "quick-": true, "\u00a0quick": true, "\u2460quick\U0001f600": true,
		"\U000142f1quick": false, "\u0897quick": false, "quick\u200c": false, "quick_": false, "9quick": false,
	} {
		if _, _, id, ok := d.Raw.Next([]byte(text), 0); ok != want || ok && id != 7 {
			t.Errorf("%+q: id %d, found %t, want %t", text, id, ok, want)
		}
	}
}
