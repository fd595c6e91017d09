package find_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace"
	"millrace/sources/find"
)

// tree makes empty files below a fresh directory, whose own name holds pattern characters to be taken literally.
func tree(t *testing.T, names ...string) string {
	t.Helper()
	base := filepath.Join(t.TempDir(), "b[1]{x,y}")
	for _, n := range names {
		p := filepath.Join(base, n)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return base
}

func namesOf(files []find.File) string {
	var names []string
	for _, f := range files {
		names = append(names, f.Name)
	}
	return strings.Join(names, " ")
}

func TestResolve(t *testing.T) {
	base := tree(t,
		"web/part-0.jsonl.zst", "web/part-1.jsonl.zst", "web/part-10.jsonl.zst", "web/README.md", "web/.hidden.jsonl", "web/deep/er/x.ndjson",
		"spark.jsonl/part-0.json.gz", "spark.jsonl/_SUCCESS", "one.jsonl",
		"code/a.parquet", "code/b/a.parquet",
		"books/corpus.bin", "books/corpus.idx", "books/other.bin", "books/other.idx", "books/x.jsonl", "books/x.jsonl.idx",
		"odd/a[1].jsonl", "odd/a1.jsonl", "tar/x-0099.jsonl", "tar/x-0100.jsonl", "tar/x-0101.jsonl",
	)
	for _, c := range []struct {
		name, patterns, root, format string
		want, wantFormat             string
	}{
		{"glob", "web/*.jsonl.zst", "", "", "part-0.jsonl.zst part-1.jsonl.zst part-10.jsonl.zst", "jsonl"},
		{"double star", "web/**/*.ndjson", "", "", "deep/er/x.ndjson", "jsonl"},
		{"directory", "web", "", "jsonl", "deep/er/x.ndjson part-0.jsonl.zst part-1.jsonl.zst part-10.jsonl.zst", "jsonl"},
		{"directory with a slash", "web/", "", "", "deep/er/x.ndjson part-0.jsonl.zst part-1.jsonl.zst part-10.jsonl.zst", "jsonl"},
		{"plain file", "web/part-0.jsonl.zst", "", "", "part-0.jsonl.zst", "jsonl"},
		{"file twice", "web/part-0.jsonl.zst|web/part-0*|web/../web/part-0.jsonl.zst", "", "", "part-0.jsonl.zst", "jsonl"},
		{"explicit root", "web/part-0.jsonl.zst|one.jsonl", ".", "", "one.jsonl web/part-0.jsonl.zst", "jsonl"},
		{"directory named like a file", "*.jsonl", "", "jsonl", "one.jsonl spark.jsonl/part-0.json.gz", "jsonl"},
		{"brace list", "{web,spark.jsonl}/*0.json*", "", "", "spark.jsonl/part-0.json.gz web/part-0.jsonl.zst web/part-10.jsonl.zst", "jsonl"},
		{"brace range", "tar/x-{0099..0101}.jsonl", "", "", "x-0099.jsonl x-0100.jsonl x-0101.jsonl", "jsonl"},
		{"nested braces", "{web/part-{0,1},one}.jsonl{.zst,}", "", "", "", ""},
		{"literal before pattern", "odd/a[1].jsonl", "", "", "a[1].jsonl", "jsonl"},
		{"class", "odd/a[0-9].jsonl", "", "", "a1.jsonl", "jsonl"},
		{"two roots", "code/*.parquet|code/b/../b", "code", "", "a.parquet b/a.parquet", "parquet"},
		{"prefix", "books/corpus", "", "", "corpus.bin", "megatron"},
		{"prefix by idx", "books/corpus.idx", "", "megatron", "corpus.bin", "megatron"},
		{"prefix glob", "books/*", "", "megatron", "corpus.bin other.bin", "megatron"},
		{"prefix braces", "books/{corpus,other}", "", "", "corpus.bin other.bin", "megatron"},
		{"directory of prefixes", "books", "", "megatron", "corpus.bin other.bin", "megatron"},
		{"foreign idx", "books", "", "jsonl", "x.jsonl", "jsonl"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := find.Resolve(base, strings.Split(c.patterns, "|"), c.root, c.format)
			if c.want == "" {
				if !errors.Is(err, millrace.ErrInvalid) {
					t.Fatalf("got %v, %v, want ErrInvalid", got, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if namesOf(got.Files) != c.want || got.Format != c.wantFormat {
				t.Fatalf("got %s (%s), want %s (%s)", namesOf(got.Files), got.Format, c.want, c.wantFormat)
			}
		})
	}
}

func TestResolveRefuses(t *testing.T) {
	base := tree(t, "a/x.jsonl", "b/x.jsonl", "b/y.parquet", "c/d/readme.txt")
	for _, c := range []struct{ patterns, root, format, says string }{
		{"a/*.jsonl|b/*.jsonl", "", "", "root:"},
		{"b/*", "", "", "format:"},
		{"c/*/*.jsonl", "", "", "nearest directory that exists is " + base + "/c"},
		{"c/nowhere/at/all.jsonl", "", "jsonl", "nearest directory that exists is " + base + "/c"},
		{"c", "", "jsonl", "no jsonl file"},
		{"a/x-{0000..0002}.jsonl", "", "", "x-0000.jsonl"},
		{"a/x-{5..2}.jsonl", "", "", "upwards"},
		{"a/{0..99999999}", "", "", "more than"},
		{"a/x.jsonl", "b", "", "not below the root"},
		{"a/[", "", "", "no"},
		{"s3://bucket/x.jsonl", "", "", "remote"},
		{"", "", "", "empty"},
	} {
		_, err := find.Resolve(base, strings.Split(c.patterns, "|"), c.root, c.format)
		if !errors.Is(err, millrace.ErrInvalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want ErrInvalid with %q", c.patterns, err, c.says)
		}
	}
}

func TestDetect(t *testing.T) {
	for name, want := range map[string]string{
		"a.jsonl": "jsonl", "a.JSON.GZ": "jsonl", "x/a.ndjson.zst": "jsonl", "a.jsonl.bgz": "jsonl", "a.parquet": "parquet",
		"a.idx": "megatron", "a.bin": "megatron", "a.txt": "", "a.gz": "", "jsonl": "", "a.parquet.gz": "",
	} {
		if got, ok := find.Detect(name); got != want || ok != (want != "") {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}
