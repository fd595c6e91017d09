package text_test

import (
	"reflect"
	"strings"
	"testing"

	"millrace/sources"
	"millrace/sources/sourcetest"
	"millrace/sources/text"
)

func format(sources.FS) sources.Format { return text.Format{} }

func fixture(name, path, content string, want sourcetest.Want) sourcetest.Fixture {
	return sourcetest.Fixture{Name: name, Files: sourcetest.Files{path: []byte(content)}, Seekable: true,
		Want: []sourcetest.Want{want}, Field: sources.Field{Text: "text"}, Limits: sources.Limits{SampleBytes: 1000}}
}

func TestContract(t *testing.T) {
	sourcetest.Run(t, format, []sourcetest.Fixture{
		fixture("a text", "a.txt", "line\nwörd\r\n", sourcetest.Want{Text: "line\nwörd\r\n"}),
		fixture("an empty file", "a.txt", "", sourcetest.Want{Text: ""}),
		fixture("a mark", "a.txt", "\xef\xbb\xbfx", sourcetest.Want{Text: "x"}),
		fixture("UTF-16", "a.txt", "\xff\xfex\x00", sourcetest.Want{Bad: "UTF-16"}),
		fixture("binary", "a.txt", "ELF\x00\x01", sourcetest.Want{Bad: "byte 3 is zero"}),
		fixture("Latin-1", "a.txt", "w\xf6rd", sourcetest.Want{Bad: "not valid UTF-8"}),
		fixture("too long", "a.txt", strings.Repeat("x", 1001), sourcetest.Want{Bad: "sample_bytes"}),
	})
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
	} {
		s, err := text.Format{}.Open(t.Context(), named{file, name}, sources.Field{Text: "text",
			Others: []string{"path", "name", "extension", "language", "stars"}}, sources.Limits{}, nil)
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
	f.Fuzz(func(t *testing.T, b []byte) {
		sourcetest.Fuzz(t, format, fixture("fuzz", "x", string(b), sourcetest.Want{}))
	})
}
