package filter

import (
	"errors"
	"testing"

	"millrace"
)

// FuzzFilter compiles expressions and judges records with them, twice with one answer.
func FuzzFilter(f *testing.F) {
	for _, s := range []string{`quality > 0.5 && language == "en"`, `(gone ?? 1.0) > 0.9`, `meta?.year < 2020`,
		`language matches "^e[nr]$"`, `any(["a", "en"], # == language)`, `max(n, 3) == n ? ok : false`,
		`tokens < 9 or ok`,
		`len(list) > 1 and list[0] == "a"`, `upper(language) + "x" contains "E"`, `float(score) % 3 != 1`} {
		f.Add(s, "en", 7, 0.75)
	}
	f.Fuzz(func(t *testing.T, text, word string, n int, x float64) {
		one, err := Compile(text)
		if err != nil {
			if !errors.Is(err, millrace.ErrInvalid) {
				t.Fatal(err)
			}
			return
		}
		set, err := NewSet(one)
		if err != nil {
			t.Fatal(err)
		}
		var values []any
		for i := range set.Fields() {
			values = append(values, []any{word, n, x, n > 0, nil, []any{word, n}, map[string]any{word: x}}[(i+n&7)%7])
		}
		bits, err := set.Judge().Refused(values, 10, len(word))
		again, errAgain := set.Judge().Refused(values, 10, len(word))
		if bits != again || (err == nil) != (errAgain == nil) {
			t.Fatalf("%s: %b, %v, then %b, %v", text, bits, err, again, errAgain)
		}
		if err != nil && !errors.Is(err, millrace.ErrBadSample) {
			t.Fatal(err)
		}
	})
}
