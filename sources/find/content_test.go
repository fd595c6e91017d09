package find_test

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"millrace/sources/find"
)

// put writes files below a fresh directory.
func put(t *testing.T, files map[string]string) string {
	t.Helper()
	base := t.TempDir()
	for name, b := range files {
		p := filepath.Join(base, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return base
}

func gzipped(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func zstded(t *testing.T, text string) string {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(w.EncodeAll([]byte(text), nil))
}

const line = "{\"text\": \"a\"}\n"

// TestContentDecides: the first bytes of a file decide its format, whatever its name is.
func TestContentDecides(t *testing.T) {
	base := put(t, map[string]string{
		"a": line, "a.jsonl.1": line, "packed": gzipped(t, line), "z.dat": zstded(t, strings.Repeat(line, 9999)),
		"spark/part-0": line, "spark/part-1": "\ufeff\n" + line, "spark/_SUCCESS": "",
		"wrong.jsonl": "PAR1\x00", "p.parquet": "PAR1", "text.txt": "a\n", "number": "1", "empty": "",
		"packed.parquet": gzipped(t, "PAR1"),
		"m.bin":          "ab", "m.idx": "MMIDIDX\x00\x00\x01", "alone.bin": "ab", "other.idx": "\x00\x01",
		"two/a": line, "two/b": "PAR1",
	})
	for patterns, want := range map[string]string{
		"a": "jsonl", "a.jsonl.1": "jsonl", "packed": "jsonl", "z.dat": "jsonl", "spark/part-*": "jsonl",
		"wrong.jsonl": "parquet", "p.parquet": "parquet", "m.bin": "megatron", "m": "megatron", "m.idx": "megatron",
		"text.txt": "text", "number": "? does not follow", "empty": "? does not follow",
		"spark": "? does not follow", "two/*": "? is not one: there are jsonl and parquet files",
	} {
		got, unclear := find.Format(base, strings.Split(patterns, "|"))
		if unclear != nil {
			got = "? " + unclear.Why
		}
		if got != want && (unclear == nil || !strings.HasPrefix(got, want)) {
			t.Errorf("%s: got %q, want %q", patterns, got, want)
		}
	}
}

// TestSkippedByContent: the reason of a file whose name shows nothing says that its content is that of the source.
func TestSkippedByContent(t *testing.T) {
	base := put(t, map[string]string{"a.jsonl": line, "b.jsonl.1": line, "notes": "x"})
	got, err := find.Resolve(nil, find.Query{Base: base, Patterns: []string{"."}, Format: "jsonl"})
	if err != nil || len(got.Files) != 1 || len(got.Skipped) != 2 {
		t.Fatal(got, err)
	}
	if why := got.Skipped[0].Reason; !strings.Contains(why, "its content is jsonl") {
		t.Errorf("b.jsonl.1: %s", why)
	}
	if why := got.Skipped[1].Reason; strings.Contains(why, "content") {
		t.Errorf("notes: %s", why)
	}
}

// TestSavedDatasets: the description that datasets writes decides which files of a directory are read.
func TestSavedDatasets(t *testing.T) {
	base := put(t, map[string]string{
		"set/state.json":         `{"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}`,
		"set/dataset_info.json":  "{}",
		"set/stray.arrow":        "",
		"dict/dataset_dict.json": `{"splits": ["train", "test"]}`, "dict/train/state.json": `{"_data_files": []}`,
		"up/d/dataset_dict.json": `{"splits": ["a", "b"]}`, "up/d/a/a.arrow": "", "up/d/b/b.arrow": "",
		"dict/train/a.arrow": "", "dict/test/b.arrow": "",
		"cache/imdb-train.arrow": "\xff\xff\xff\xff\x10\x00\x00\x00\x10\x00\x00\x00....", "cache/cache-01.arrow": "",
		"chosen/state.json": `{"_data_files": [], "_indices_data_files": [{"filename": "i.arrow"}]}`,
		"chosen/a.arrow":    "", "broken/state.json": "{", "broken/a.arrow": "",
		"set/data-00000-of-00001.arrow": "ARROW1\x00\x00",
		"short/state.json":              `{"_data_files": [{"filename": "1.arrow"}, {"filename": "2.arrow"}]}`,
		"short/1.arrow":                 "",
		"twice/state.json":              `{"_data_files": [{"filename": "1.arrow"}, {"filename": "1.arrow"}]}`,
		"twice/1.arrow":                 "",
	})
	for path, want := range map[string]string{
		"set": "data-00000-of-00001.arrow", "cache": "imdb-train.arrow", "cache/*": "cache-01.arrow imdb-train.arrow",
		"dict": "has the splits train (0 files), test (1 file), as dataset_dict.json says: write",
		"up":   "splits a (1 file), b (1", "dict/test": "b.arrow",
		"chosen": "flatten_indices", "broken": "state.json", "short": `lists "2.arrow", which is not there`,
		"twice": `lists "1.arrow", twice`,
	} {
		got, err := find.Resolve(nil, find.Query{Base: base, Patterns: []string{path}, Format: "arrow"})
		if said := namesOf(got.Files); err == nil && said != want {
			t.Errorf("%s: got %s, want %s", path, said, want)
		}
		if err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", path, err, want)
		}
	}
	for _, path := range []string{"set", "cache", "cache/*"} {
		if got, unclear := find.Format(base, []string{path}); got != "arrow" {
			t.Errorf("%s: got %q, %v", path, got, unclear)
		}
	}
}

// TestJSONByContent: an array in a file named .json is not read as lines, and a directory of such files is read whole.
func TestJSONByContent(t *testing.T) {
	base := put(t, map[string]string{"a/x.json": "[\n {\"text\": \"a\"}\n]", "a/y.json.gz": gzipped(t, "[{}]"),
		"a/z.jsonl": "", "pretty.json": "{\n  \"a\": 1\n}\n", "lines.json": line, "t.csv": "text\n", "u.tsv.gz": "",
		"mixed/a.csv.gz": "", "mixed/b.parquet": "PAR1"})
	for pattern, want := range map[string]string{"a/x.json": "json", "a/*.json*": "json", "pretty.json": "json",
		"lines.json": "jsonl", "t.csv": "csv", "u.tsv.gz": "csv", "mixed": "parquet"} {
		if got, unclear := find.Format(base, []string{pattern}); got != want {
			t.Errorf("%s: got %q (%v), want %s", pattern, got, unclear, want)
		}
	}
	got, err := find.Resolve(nil, find.Query{Base: base, Patterns: []string{"a"}, Format: "json"})
	if err != nil || namesOf(got.Files) != "x.json y.json.gz" {
		t.Errorf("got %v, %v", got, err)
	}
}
