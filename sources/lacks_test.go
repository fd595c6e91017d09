package sources_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/arrow"
	"millrace/sources/format/csv"
	"millrace/sources/format/parquet"
	"millrace/sources/format/parts/fields"
)

// TestColumnsThatSomeFilesLack: a column that a file lacks, or that has the null type there, is null in its records. A
// column that a document needs must be in every file unless such records are skipped, and one file must have it.
func TestColumnsThatSomeFilesLack(t *testing.T) {
	for name, c := range map[string]struct {
		format sources.Format
		files  []string // the second one lacks the columns text and lang, the third has nulls of no type
	}{
		"csv":     {csv.Format{}, []string{"a.csv", "b.csv"}},
		"parquet": {parquet.Format{}, []string{"a.parquet", "b.parquet", "c.parquet"}},
		"arrow":   {arrow.Format{}, []string{"a.arrow", "b.arrow", "c.arrow"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, file := range c.files {
				b, err := os.ReadFile(filepath.Join("testdata/lacks", file))
				if err != nil {
					t.Fatal(err)
				}
				put(t, dir, file, b)
			}
			spec := sources.Spec{Name: "web", Format: c.format, Base: dir, Patterns: []string{"*"}, Seed: 3, Epochs: 1,
				Field: sources.Field{Text: "text"}, Tokenizer: gpt2(t), IndexDir: t.TempDir()}
			want := `b.` + name + ` has no column "text"; there are: id`
			if _, err := sources.Open(t.Context(), spec, sources.OpenOptions{}); !errors.Is(err, millrace.ErrInvalid) ||
				!strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
			spec.SkipMissing = true
			for range 2 { // the second time with the facts of the first
				checkLacks(t, spec, c.files, 0)
			}
			spec.SkipMissing, spec.Filters = false, set(t, `(lang ?? "none") == "none"`)
			template, err := fields.ParseTemplate("{id}")
			if err != nil {
				t.Fatal(err)
			}
			spec.Field.Text, spec.Maker = "", fields.NewTemplateMaker(template, sources.NewEncoder(spec.Tokenizer,
				false, true), false)
			checkLacks(t, spec, c.files, 1)
			spec.Filters = set(t, `(language ?? "none") == "none"`)
			if _, err := sources.Open(t.Context(), spec, sources.OpenOptions{}); !errors.Is(err, millrace.ErrInvalid) ||
				!strings.Contains(err.Error(), `has no column "language"`) {
				t.Errorf("a column that no file has: %v", err)
			}
		})
	}
}

// checkLacks compares the documents of each file: of the first one all or none are there, of the others the opposite.
func checkLacks(t *testing.T, spec sources.Spec, files []string, kept int) {
	t.Helper()
	offers, _ := offersOf(t, spec)
	if len(offers) != 2*len(files) {
		t.Fatalf("%d offers of %d files", len(offers), len(files))
	}
	for id, o := range offers {
		isKept := o.Refused == 0 && !o.Rejected
		if want := (id.Shard == 0) == (kept == 0); isKept != want {
			t.Errorf("%s: record %d is kept: %v, want %v (%s)", files[id.Shard], id.Record, isKept, want,
				o.Quarantine.Reason)
		}
	}
}
