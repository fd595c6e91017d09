package text_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/text"
	"millrace/sources/sourcetest"
)

func format(sources.FS) sources.Format { return text.Format{} }

func fixture(name, path, content string, want sourcetest.Want) sourcetest.Fixture {
	return sourcetest.Fixture{Name: name, Files: sourcetest.Files{path: []byte(content)}, Seekable: true,
		Want: []sourcetest.Want{want}, Field: sources.Field{Text: "text"}, Limits: sources.Limits{SampleBytes: 1000}}
}

func TestContract(t *testing.T) {
	sourcetest.Run(t, "text", format, []sourcetest.Fixture{
		fixture("a text", "a.txt", "line\nwörd\r\n", sourcetest.Want{Text: "line\nwörd\r\n"}),
		fixture("an empty file", "a.txt", "", sourcetest.Want{Text: ""}),
		fixture("a mark", "a.txt", "\xef\xbb\xbfx", sourcetest.Want{Text: "x"}),
		fixture("UTF-16", "a.txt", "\xff\xfex\x00", sourcetest.Want{Bad: "UTF-16"}),
		fixture("binary", "a.txt", "ELF\x00\x01", sourcetest.Want{Bad: "byte 3 is zero"}),
		fixture("Latin-1", "a.txt", "w\xf6rd", sourcetest.Want{Bad: "not valid UTF-8"}),
		fixture("too long", "a.txt", strings.Repeat("x", 1001), sourcetest.Want{Bad: "sample_bytes"}),
	})
}

// packedFixtures are files of the commands gzip, bzip2, xz and zstd: one stream, and two behind each other.
func packedFixtures(t *testing.T) (all []sourcetest.Fixture) {
	t.Helper()
	page := read(t, "page.txt")
	for _, name := range []string{"page.txt.gz", "page.txt.bz2", "page.txt.xz", "page.txt.zst", "two.txt.gz",
		"two.txt.bz2", "two.txt.xz", "two.txt.zst"} {
		f := fixture(name, name, read(t, name), sourcetest.Want{Text: page})
		f.Limits.SampleBytes = int64(len(page))
		all = append(all, f)
	}
	return all
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestPacked: a packed file is one document, whatever its name is. Its unpacked bytes count for sample_bytes.
func TestPacked(t *testing.T) {
	all := packedFixtures(t)
	for _, f := range slices.Clone(all[:2]) {
		f.Name += ", too long"
		f.Limits.SampleBytes--
		f.Want = []sourcetest.Want{{Bad: "the unpacked file is longer than sample_bytes"}}
		all = append(all, f)
	}
	member := gzipped(t, "\xef\xbb\xbfx")
	sourcetest.Run(t, "text", format, append(all,
		fixture("a mark", "a.txt.gz", member, sourcetest.Want{Text: "x"}),
		fixture("another name", "a.txt", member, sourcetest.Want{Text: "x"}),
		fixture("a name alone", "a.txt.gz", "plain", sourcetest.Want{Text: "plain"}),
		fixture("nothing", "a.txt.gz", gzipped(t, ""), sourcetest.Want{Text: ""}),
		fixture("nothing of bzip2", "a.txt.bz2", read(t, "empty.txt.bz2"), sourcetest.Want{Text: ""}),
		fixture("the word BZh", "a.txt", "BZh91", sourcetest.Want{Text: "BZh91"}),
		fixture("packed binary", "a.gz", gzipped(t, "ELF\x00"), sourcetest.Want{Bad: "byte 3 is zero"}),
		large(t),
	))
}

// large is a packed file of more bytes than are read at once.
func large(t *testing.T) sourcetest.Fixture {
	rng := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 3<<19)
	for i := range noise {
		noise[i] = byte(' ' + rng.IntN(94))
	}
	f := fixture("large", "a.txt.gz", gzipped(t, string(noise)), sourcetest.Want{Text: string(noise)})
	f.Limits.SampleBytes = 1 << 22
	return f
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

// TestDamageOfPacked: a damaged packed file is an error that names it, or a bad record; it never gives another text.
func TestDamageOfPacked(t *testing.T) {
	all := packedFixtures(t)
	sourcetest.Damage(t, format, all[:4], 40<<20)
	for _, f := range all[4:] {
		f.Limits.SampleBytes = 1 << 20
		for path, b := range f.Files {
			for at := 10; at < len(b); at += 3 { // the bytes before show the packing
				flipped := f
				flipped.Files = sourcetest.Files{path: bytes.Clone(b)}
				flipped.Files[path][at] ^= 4
				err := sourcetest.Open(t, format, flipped)
				if err != nil && !errors.Is(err, millrace.ErrDamaged) &&
					!strings.Contains(err.Error(), "sample_bytes") {
					t.Errorf("byte %d of %s: %v", at, path, err)
				}
			}
		}
	}
}

func TestDamage(t *testing.T) {
	sourcetest.Damage(
		t,
		format,
		[]sourcetest.Fixture{fixture("a text", "a.txt", "some text", sourcetest.Want{})},
		1<<20,
	)
}

// named is a file that knows its place below the root of its source.
type named struct {
	sources.OpenFile
	shard string
}

func (n named) ShardName() string { return n.shard }

// TestFields: path and language follow from the name below the root, so they are the same on every host.
func TestFields(t *testing.T) {
	file, _ := sourcetest.Files{"/data/repo/src/Main.PY": []byte("pass")}.Open("/data/repo/src/Main.PY")
	for name, want := range map[string][]any{
		"src/Main.PY":  {"src/Main.PY", "Main.PY", "PY", "python", nil},
		"src/Makefile": {"src/Makefile", "Makefile", "", "makefile", nil},
		"notes":        {"notes", "notes", "", nil, nil},
		"src/a.py.gz":  {"src/a.py.gz", "a.py.gz", "py", "python", nil},
		"b.txt.zst":    {"b.txt.zst", "b.txt.zst", "txt", "text", nil},
	} {
		s, err := text.Format{}.Open(t.Context(), named{file, name}, sources.Field{Text: "text",
			Others: []string{"path", "name", "extension", "language", "stars"}}, sources.Limits{}.Resolved(), nil)
		if err != nil {
			t.Fatal(err)
		}
		err = s.Scan(t.Context(), 0, func(r sources.Record) error {
			if string(r.Text) != "pass" || !reflect.DeepEqual(r.Others, want) {
				t.Errorf("%s: got %q %v, want %v", name, r.Text, r.Others, want)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add([]byte("text"))
	f.Add([]byte("\xef\xbb\xbf\xff"))
	for _, name := range []string{"page.txt.gz", "page.txt.bz2", "page.txt.xz", "page.txt.zst"} {
		b, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		sourcetest.Fuzz(t, format, fixture("fuzz", "x", string(b), sourcetest.Want{}))
	})
}

// TestRecords: lines and paragraphs of plain and packed files are documents of their own.
func TestRecords(t *testing.T) {
	const page = "\xef\xbb\xbfone\r\n  two\n \t\n\n\nthree \nw\xf6rd\nfour"
	want := map[text.Record][]sourcetest.Want{
		text.Line:      {{Text: "one"}, {Text: "  two"}, {Text: "three "}, {Bad: "not valid UTF-8"}, {Text: "four"}},
		text.Paragraph: {{Text: "one\r\n  two"}, {Bad: "not valid UTF-8"}},
	}
	for record, want := range want {
		open := func(sources.FS) sources.Format { return text.Format{Record: record} }
		for name, b := range map[string][]byte{"a.txt": []byte(page), "a.txt.gz": []byte(gzipped(t, page))} {
			sourcetest.Run(t, "text", open, []sourcetest.Fixture{{Name: string(record) + " of " + name,
				Files: sourcetest.Files{name: b}, Seekable: name == "a.txt", Want: want,
				Field: sources.Field{Text: "text"}, Limits: sources.Limits{SampleBytes: 1000}}})
		}
		file, _ := sourcetest.Files{"b.py": []byte("pass\n")}.Open("b.py")
		s, err := open(nil).Open(t.Context(), named{file, "src/b.py"}, sources.Field{Text: "text",
			Others: []string{"path", "language"}}, sources.Limits{}.Resolved(), nil)
		if err != nil {
			t.Fatal(err)
		}
		err = s.Scan(t.Context(), 0, func(r sources.Record) error {
			if string(r.Text) != "pass" || !reflect.DeepEqual(r.Others, []any{"src/b.py", "python"}) {
				t.Errorf("%s: got %q %v", record, r.Text, r.Others)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}
