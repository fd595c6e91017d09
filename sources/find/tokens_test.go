package find_test

import (
	"path/filepath"
	"slices"
	"testing"

	"millrace/sources/find"
)

// TestFilesOfPlainIDs: the files beside the ids hold no records, and a .bin without an .idx belongs to a source that
// says it.
func TestFilesOfPlainIDs(t *testing.T) {
	base := put(t, map[string]string{
		"o/part-0.npy": "ab", "o/part-0.csv.gz": "x", "d/0_tokens.ds": "ab", "d/0_tokens.ds.index": "x",
		"d/0_tokens.ds.metadata": "x", "d/0_tokens.ds.loss": "x", "t/a.bin": "ab", "t/m.bin": "ab", "t/m.idx": "x",
		"l/a.bin": "\x88\xd8\x34\x01\x01\x00\x00\x00", "l/b.bin": "\xa1\xd9\x34\x01\x01\x00\x00\x00",
		"n/a.npy": "\x93NUMPY\x01\x00",
	})
	for path, want := range map[string]string{
		"o": "olmo", "o/*": "olmo", "d": "datatrove", "d/*.ds": "datatrove", "l/a.bin": "tokens", "l/b.bin": "tokens",
		"n/a.npy": "tokens",
	} {
		if got, why := find.Format(base, []string{path}); got != want {
			t.Errorf("%s: got %q, %v, want %s", path, got, why, want)
		}
	}
	for _, c := range []struct{ path, format string }{{"o", "olmo"}, {"o/*", "olmo"}, {"d", "datatrove"},
		{"d/*", "datatrove"}, {"t", "tokens"}} {
		found, err := find.Resolve(nil, find.Query{Base: base, Patterns: []string{c.path}, Format: c.format})
		if err != nil || len(found.Files) != 1 {
			t.Errorf("%s as %s: got %v, %v, want one file", c.path, c.format, found.Files, err)
			continue
		}
		ext := filepath.Ext(found.Files[0].Path)
		if !slices.Contains([]string{".npy", ".ds", ".bin"}, ext) || filepath.Base(found.Files[0].Path) == "m.bin" {
			t.Errorf("%s: got %s", c.path, found.Files[0].Path)
		}
		for _, s := range found.Skipped {
			if !s.Side && c.format != "tokens" {
				t.Errorf("%s: %s is skipped as if it held records: %s", c.path, s.Path, s.Reason)
			}
		}
	}
}
