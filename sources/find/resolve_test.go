package find_test

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"millrace"
	"millrace/sources/find"
)

// tree makes empty files below a fresh directory. The directory's own name has pattern characters, which must match
// literally.
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
	base := tree(t, "web/part-0.jsonl.zst", "web/part-1.jsonl.zst", "web/part-10.jsonl.zst", "web/README.md",
		"web/.hidden.jsonl", "web/deep/er/x.ndjson", "spark.jsonl/part-0.json.gz", "spark.jsonl/_SUCCESS", "one.jsonl",
		"code/a.parquet", "code/b/a.parquet", "books/corpus.bin", "books/corpus.idx", "books/other.bin",
		"books/other.idx", "books/x.jsonl", "books/x.jsonl.idx", "odd/a[1].jsonl", "odd/a1.jsonl", "tar/x-0099.jsonl",
		"tar/x-0100.jsonl", "tar/x-0101.jsonl")
	for _, c := range []struct {
		name, patterns, root, format string
		want                         string
	}{
		{"glob", "web/*.jsonl.zst", "", "jsonl", "part-0.jsonl.zst part-1.jsonl.zst part-10.jsonl.zst"},
		{"double star", "web/**/*.ndjson", "", "jsonl", "deep/er/x.ndjson"},
		{"directory", "web", "", "jsonl", "deep/er/x.ndjson part-0.jsonl.zst part-1.jsonl.zst part-10.jsonl.zst"},
		{"directory with a slash", "web/", "", "jsonl",
			"deep/er/x.ndjson part-0.jsonl.zst part-1.jsonl.zst part-10.jsonl.zst"},
		{"plain file", "web/part-0.jsonl.zst", "", "jsonl", "part-0.jsonl.zst"},
		{"file twice", "web/part-0.jsonl.zst|web/part-0*|web/../web/part-0.jsonl.zst", "", "jsonl", "part-0.jsonl.zst"},
		{"explicit root", "web/part-0.jsonl.zst|one.jsonl", ".", "jsonl", "one.jsonl web/part-0.jsonl.zst"},
		{"directory named like a file", "*.jsonl", "", "jsonl", "one.jsonl spark.jsonl/part-0.json.gz"},
		{"brace list", "{web,spark.jsonl}/*0.json*", "", "jsonl",
			"spark.jsonl/part-0.json.gz web/part-0.jsonl.zst web/part-10.jsonl.zst"},
		{"brace range", "tar/x-{0099..0101}.jsonl", "", "jsonl", "x-0099.jsonl x-0100.jsonl x-0101.jsonl"},
		{"nested braces", "{web/part-{0,1},one}.jsonl{.zst,}", "", "jsonl", ""},
		{"literal before pattern", "odd/a[1].jsonl", "", "jsonl", "a[1].jsonl"},
		{"class", "odd/a[0-9].jsonl", "", "jsonl", "a1.jsonl"},
		{"two roots", "code/*.parquet|code/b/../b", "code", "parquet", "a.parquet b/a.parquet"},
		{"prefix", "books/corpus", "", "megatron", "corpus.bin"},
		{"prefix by idx", "books/corpus.idx", "", "megatron", "corpus.bin"},
		{"prefix glob", "books/*", "", "megatron", "corpus.bin other.bin"},
		{"prefix braces", "books/{corpus,other}", "", "megatron", "corpus.bin other.bin"},
		{"directory of prefixes", "books", "", "megatron", "corpus.bin other.bin"},
		{"foreign idx", "books", "", "jsonl", "x.jsonl"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := find.Resolve(nil, find.Query{Base: base, Patterns: strings.Split(c.patterns, "|"),
				Root: c.root, Format: c.format})
			if c.want == "" {
				if !errors.Is(err, millrace.ErrInvalid) {
					t.Fatalf("got %v, %v, want ErrInvalid", got, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if namesOf(got.Files) != c.want {
				t.Fatalf("got %s, want %s", namesOf(got.Files), c.want)
			}
		})
	}
}

func TestResolveRefuses(t *testing.T) {
	base := tree(t, "a/x.jsonl", "b/x.jsonl", "b/y.parquet", "c/d/readme.txt", "packed/y.jsonl", "packed/z.jsonl.lz4")
	for _, c := range []struct{ patterns, root, format, says string }{
		{"a/*.jsonl|b/*.jsonl", "", "", "root:"},
		{"packed", "", "jsonl", "z.jsonl.lz4: it is jsonl packed with LZ4, which is not read"},
		{"packed/*", "", "jsonl", "z.jsonl.lz4: it is jsonl packed with LZ4, which is not read"},
		{"c/*/*.jsonl", "", "", "nearest directory that exists is " + base + "/c"},
		{"c/nowhere/at/all.jsonl", "", "jsonl", "nearest directory that exists is " + base + "/c"},
		{"c", "", "jsonl", "no jsonl file"},
		{"a/x-{0000..0002}.jsonl", "", "", "x-0000.jsonl"},
		{"a/x-{5..2}.jsonl", "", "", "upwards"},
		{"a/{0..99999999}", "", "", "more than"},
		{"a/x.jsonl", "b", "", "not below the root"},
		{"a/[", "", "", "no"},
		{"s3://bucket/x.jsonl", "", "", "does not read stores"},
		{"", "", "", "empty"},
	} {
		_, err := find.Resolve(nil, find.Query{Base: base, Patterns: strings.Split(c.patterns, "|"), Root: c.root,
			Format: cmp.Or(c.format, "jsonl")})
		if !errors.Is(err, millrace.ErrInvalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want ErrInvalid with %q", c.patterns, err, c.says)
		}
	}
}

// TestThePackingsOfACureAreRead: a format that is read unpacked alone is not to be packed another way.
func TestThePackingsOfACureAreRead(t *testing.T) {
	for pattern, cure := range map[string]string{
		"x.txt.lz4":     "unpack it, or pack it with gzip, BGZF, zstd, bzip2 or xz",
		"x.parquet.gz":  "unpack it",
		"x.jsonl.lz4":   "unpack it, or pack it with gzip, BGZF, zstd, bzip2 or xz",
		"x.tfrecord.xz": "unpack it, or pack it with gzip",
	} {
		base := tree(t, pattern)
		_, why := find.Format(base, []string{pattern})
		if why == nil || why.Cure != cure {
			t.Errorf("%s: got %+v, want the cure %q", pattern, why, cure)
		}
	}
}

// TestSkipped: each file below a directory is read, or listed with the reason.
func TestSkipped(t *testing.T) {
	base := tree(t, "d/a.jsonl", "d/b.parquet.xz", "d/e.jsonl.1", "d/dataset_info.json", "d/README.md", "d/.b.jsonl",
		"d/.git/config", "d/corpus.bin", "d/corpus.idx", "d/alone.bin", "d/x.jsonl", "d/x.jsonl.idx", "d/t.parquet",
		"other/a.jsonl")
	for link, to := range map[string]string{"d/linked": "../other", "d/lost.txt": "nowhere"} {
		if err := os.Symlink(to, filepath.Join(base, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		patterns, format string
		want             []string
	}{
		{"d", "jsonl", []string{
			".b.jsonl: its name begins with a dot", ".git: its name begins with a dot; nothing below it is read",
			"README.md: it describes a dataset and holds no records",
			"alone.bin: alone.idx is not beside it",
			"b.parquet.xz: its name is that of a parquet file, and the source reads jsonl",
			"corpus.bin: it belongs to a Megatron dataset, and the source reads jsonl",
			"corpus.idx: it belongs to a Megatron dataset, and the source reads jsonl",
			"dataset_info.json: it describes a dataset and holds no records",
			"e.jsonl.1: its name has no ending of a known format",
			"linked: a link to a directory is not followed", "lost.txt: it is a link to a missing file",
			"t.parquet: its name is that of a parquet file, and the source reads jsonl",
			"x.jsonl.idx: x.jsonl.bin is not beside it",
		}},
		{"d/*.json*|d", "jsonl", nil},
		{"d/*.json*", "jsonl", []string{
			".b.jsonl: its name begins with a dot; a pattern that writes this out reads it",
			"dataset_info.json: it describes a dataset and holds no records",
			"x.jsonl.idx: it is the index that another program keeps of x.jsonl",
		}},
		{"d/a.jsonl", "jsonl", []string{}},
		{"d/*.{bin,idx}", "megatron", []string{"x.jsonl.idx: it is the index that another program keeps of x.jsonl"}},
	} {
		got, err := find.Resolve(nil, find.Query{Base: base, Patterns: strings.Split(c.patterns, "|"),
			Format: c.format})
		if err != nil {
			t.Fatal(err)
		}
		var texts []string
		for _, s := range got.Skipped {
			texts = append(texts, strings.TrimPrefix(s.Path, base+"/d/")+": "+s.Reason)
		}
		if c.want != nil && !slices.Equal(texts, c.want) {
			t.Errorf("%s: skipped:\n%s\nwant:\n%s", c.patterns, strings.Join(texts, "\n"), strings.Join(c.want, "\n"))
		}
	}
}

func TestFormat(t *testing.T) {
	base := tree(t, "web/a.jsonl.zst", "web/README.md", "web/dataset_info.json", "c4/c4-train.00000-of-00512.json.gz",
		"mixed/a.jsonl", "mixed/b.parquet", "hub/data/train-00000.parquet", "hub/metadata.json", "docs/a.json",
		"books/corpus.bin", "books/corpus.idx", "none/a.log")
	for patterns, want := range map[string]string{
		"x.jsonl": "jsonl", "x.{jsonl,ndjson}.gz": "jsonl", "x*.json.gz": "jsonl", "x.json": "jsonl",
		"part-*.parquet": "parquet", "a.jsonl*": "jsonl",
		"web": "jsonl", "web/*": "jsonl", "c4": "jsonl", "hub": "parquet", "docs": "jsonl", "books/corpus": "megatron",
		"books":             "megatron",
		"x.{jsonl,parquet}": "? does not follow from",
		"a.jsonl|b.parquet": "? is not one: there are jsonl and parquet files",
		"mixed":             "? is not one: there are jsonl and parquet files", "none": "? does not follow",
		"web/a":      "? does not follow",
		"x.jsonl.xz": "jsonl", "x.jsonl.lz4": "? is jsonl packed with LZ4", "s3://b/web": "? does not follow",
		"x.parquet.gz": "? is parquet packed with gzip", "x.txt.{gz,zst,bz2,xz}": "text",
	} {
		got, unclear := find.Format(base, strings.Split(patterns, "|"))
		if unclear != nil {
			got = "? " + unclear.Why
		}
		if got != want && (unclear == nil || !strings.HasPrefix(got, want) || unclear.Cure == "") {
			t.Errorf("%s: got %q, want %q", patterns, got, want)
		}
	}
}
