package sourcetest

import (
	"slices"
	"testing"

	"millrace/sources"
)

// constants tests that records have a field of the place of their file, beside their own fields. all are the records
// without it.
func (f Fixture) constants(t *testing.T, mk New, all []record) {
	t.Helper()
	if f.Field.Text == "" && len(f.Field.Others) == 0 { // no records with fields
		return
	}
	const name = "key of a folder"
	file, err := f.Files.Open(f.path())
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for needed := range 2 {
		field := f.Field
		field.Others = slices.Insert(slices.Clone(field.Others), 0, name)
		field.Needed += needed
		s, err := sources.Constants{{Name: name, Value: "value"}}.Open(t.Context(), mk(f.Files), file, field,
			f.Limits.Resolved(), nil)
		if err != nil {
			t.Fatalf("open with a constant: %v", err)
		}
		got, err := scan(t.Context(), s, 0)
		if err != nil || len(got) != len(all) {
			t.Fatalf("%d records with a constant, %v, want %d", len(got), err, len(all))
		}
		for i, r := range got {
			if all[i].Why != "" {
				continue
			}
			if len(r.Others) == 0 || r.Others[0] != "value" || string(r.Text) != string(all[i].Text) ||
				r.Why != "" || !slices.Equal(r.Tokens, all[i].Tokens) {
				t.Fatalf("with a constant got %v, want %v", r, all[i])
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
