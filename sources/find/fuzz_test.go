package find

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"millrace"
)

// FuzzContent looks at files of any bytes, as a directory's index.json and as data.
func FuzzContent(f *testing.F) {
	for _, s := range []string{"PAR1", "ARROW1\x00\x00", "\xff\xff\xff\xff\x10\x00\x00\x00", "MMIDIDX\x00\x00",
		`[{"a": 1}]`,
		`{"text": "x"}` + "\n", `{"shards": [{"raw_data": {"basename": "x.bin", "bytes": 1}}]}`, "\x1f\x8b\x08\x00",
		`{"chunks": [{"filename": "../x", "chunk_bytes": 1}]}`, "\x28\xb5\x2f\xfd\x04\x00", "\x93NUMPY", "BZh91AY",
		`{"_data_files": [{"filename": "x.arrow"}]}`} {
		for kind := range uint8(4) {
			f.Add([]byte(s), kind)
		}
	}
	dirs := []string{f.TempDir(), f.TempDir(), f.TempDir(), f.TempDir()}
	if err := os.WriteFile(filepath.Join(dirs[3], "x.arrow"), nil, 0o600); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte, kind uint8) {
		dir, name := dirs[kind%4], []string{"x.bin", "index.json", "index.json", "state.json"}[kind%4]
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
		if kind%4 == 0 {
			Format(dir, []string{name})
			return
		}
		format := []string{"mds", "litdata", "arrow"}[kind%4-1]
		got, err := Resolve(nil, Query{Base: dir, Patterns: []string{"."}, Format: format})
		for _, file := range got.Files {
			if filepath.Dir(file.Path) != dir {
				t.Errorf("%s: %s is outside of the directory", format, file.Path)
			}
		}
		if err != nil && !errors.Is(err, millrace.ErrInvalid) && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", format, err)
		}
	})
}

// FuzzPattern expands patterns over a small tree. Files lie below the directory that a pattern names.
func FuzzPattern(f *testing.F) {
	for _, s := range []string{"*.jsonl", "**", "a/{b,c}.jsonl", "x-{000..003}.jsonl", "[ab]*", "a/../a", "{a,{b,c}}",
		"?",
		"{0..99999999999}", "a\\*b", "{", "[", "s3://b/*", "http://h/{1..3}", "~", "./a//b.jsonl"} {
		f.Add(s)
	}
	dir := f.TempDir()
	for _, name := range []string{"a/b.jsonl", "a/c.jsonl", "x-001.jsonl", "x-002.jsonl", "b"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			f.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("{}\n"), 0o600); err != nil {
			f.Fatal(err)
		}
	}
	f.Fuzz(func(t *testing.T, pattern string) {
		if filepath.IsAbs(pattern) || !filepath.IsLocal(filepath.Clean(pattern)) {
			return // it looks at the machine's files
		}
		got, err := Resolve(nil, Query{Base: dir, Patterns: []string{pattern}, Format: "jsonl"})
		if (err == nil) != (len(got.Files) > 0) {
			t.Errorf("%q: %v, %v", pattern, got.Files, err)
		}
	})
}
