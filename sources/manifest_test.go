package sources_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/jsonl"
)

// TestManifestCompare: the first file that differs is named.
func TestManifestCompare(t *testing.T) {
	dir := t.TempDir()
	rewrite := func(name, text string) { put(t, dir, name, []byte(text)) }
	for i := range 3 {
		rewrite(fmt.Sprintf("part-%03d.jsonl", i), "one\ntwo\n")
	}
	manifest := func() *millrace.Manifest {
		s, err := sources.Open(t.Context(),
			sources.Spec{Name: "web", Format: jsonl.Format{}, Base: dir, Patterns: []string{"."},
				Field: sources.Field{Text: "text"}, Tokenizer: gpt2(t)},
			sources.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		return s.Manifest()
	}
	before := *manifest()
	if err := sources.Compare(&before, manifest()); err != nil {
		t.Fatal(err)
	}
	rewrite("part-001.jsonl", "one\ntwo\nY")
	for i, want := range []string{"part-001.jsonl", "new.jsonl is new", "part-000.jsonl is missing"} {
		switch i {
		case 1:
			rewrite("new.jsonl", "x\n")
		case 2:
			os.Remove(filepath.Join(dir, "part-000.jsonl"))
			os.Remove(filepath.Join(dir, "new.jsonl"))
		}
		err := sources.Compare(&before, manifest())
		if !errors.Is(err, millrace.ErrMismatch) || !strings.Contains(err.Error(), want) {
			t.Errorf("compare: %v, want %q", err, want)
		}
	}
}
