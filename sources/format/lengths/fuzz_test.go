package lengths_test

import (
	"testing"

	"millrace/sources"
	"millrace/sources/format/lengths"
	"millrace/sources/sourcetest"
)

// FuzzLengths reads all records of a file that describes few tokens. A short line can describe 2³⁶ documents of 2²⁴
// tokens, so of other files only the last length is asked for.
func FuzzLengths(f *testing.F) {
	for _, s := range []string{"tokens,patches,count\n5,0,2\n7,12,1\n", "# mine\n\ncount, tokens\n3,1\r\n1,2",
		"length,count\n9,2\n", "4\n\n2\n", "{\"tokens\": 3}\n{\"tokens\": 1, \"count\": 2}\n",
		"tokens,count\n16777216,68719476736\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if described(t, text) <= 1<<20 {
			sourcetest.Fuzz(t, format, fixture("fuzz", text))
		}
	})
}

// described returns the documents and tokens of a file, 0 if it cannot be opened.
func described(t *testing.T, text string) (n uint64) {
	file, err := sourcetest.Files{"x.csv": []byte(text)}.Open("x.csv")
	if err != nil {
		t.Fatal(err)
	}
	s, err := lengths.Format{}.Open(t.Context(), file, sources.Field{}, sources.Limits{}.Resolved(), nil)
	if err != nil {
		return 0
	}
	last, documents := uint32(0), uint64(0)
	_ = s.Abilities().Runs.LengthRuns(func(tokens uint32, records uint64) error {
		last, documents, n = tokens, documents+records, n+records*(1+uint64(tokens))
		return nil
	})
	count, _ := s.Count()
	if count != documents {
		t.Errorf("%d documents, and %d in runs", count, documents)
	}
	if got, known := s.Abilities().Lengths.Length(count - 1); count > 0 && (!known || got != last) {
		t.Errorf("the last document has %d tokens (%t), want %d", got, known, last)
	}
	return n
}
