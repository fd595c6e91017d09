package lengths_test

import (
	"errors"
	"strings"
	"testing"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/lengths"
	"millrace/sources/sourcetest"
)

func format(sources.FS) sources.Format { return lengths.Format{} }

func fixture(name, text string, want ...int) sourcetest.Fixture {
	f := sourcetest.Fixture{
		Name:     name,
		Files:    sourcetest.Files{"d/x.csv": []byte(text)},
		Path:     "d/x.csv",
		Seekable: true,
	}
	for _, n := range want {
		f.Want = append(f.Want, sourcetest.Want{Tokens: make([]uint32, n)})
	}
	return f
}

func TestContract(t *testing.T) {
	sourcetest.Run(t, "lengths", format, []sourcetest.Fixture{
		fixture("columns", "tokens,patches,count\n5,0,2\n7,12,1\n0,3,0\n0,0,1\n", 5, 5, 7, 0),
		fixture("other order", "# mine\n\ncount, tokens\n3,1\r\n1,2", 1, 1, 1, 2),
		fixture("histogram", "length,count\n9,2\n", 9, 9),
		fixture("numbers", "4\n\n2\n", 4, 2),
		fixture("objects", "{\"tokens\": 3}\n{\"tokens\": 1, \"patches\": 4, \"count\": 2}\n", 3, 1, 1),
		fixture("nothing", "tokens\n"),
	})
}

// TestDamage: a file of lengths has no checksums, so damage may change lengths. Each error names the file and the line.
func TestDamage(t *testing.T) {
	sourcetest.Damage(t, format, []sourcetest.Fixture{
		fixture("columns", "tokens,patches,count\n5,0,2\n7,12,1\n0,3,0\n0,0,1\n"),
		fixture("objects", "{\"tokens\": 3}\n{\"tokens\": 1, \"patches\": 4, \"count\": 2}\n"),
	}, 1<<30)
}

func TestBadLengthsAreRefused(t *testing.T) {
	for text, says := range map[string]string{
		"words\n5\n":                           `line 1 names no columns, or one twice: "words"`,
		"tokens,tokens\n5,5\n":                 "or one twice",
		"patches\n5\n":                         "names no column tokens",
		"5,1\n":                                "names no columns",
		"tokens,count\n5\n":                    "line 2 has 1 columns, and the first line names 2",
		"tokens\n-1\n":                         `line 2 has "-1" for tokens`,
		"tokens\n1.5\n":                        `line 2 has "1.5" for tokens`,
		"tokens\n16777217\n":                   "line 2 has a document of 16777217 tokens",
		"tokens,patches\n1,99999999\n":         "99999999 patches",
		"tokens,count\n1,68719476736\n1,1":     "line 3 brings the documents to more than",
		"{\"tokens\": \"x\"}\n":                "line 1 is no JSON object",
		"{\"patches\": 1}\n":                   "line 1 has no tokens",
		"tokens\n" + strings.Repeat("1", 5000): "line 2 is longer than",
	} {
		f := sourcetest.Files{"x.csv": []byte(text)}
		file, err := f.Open("x.csv")
		if err != nil {
			t.Fatal(err)
		}
		_, err = lengths.Format{}.Open(t.Context(), file, sources.Field{}, sources.Limits{}.Resolved(), nil)
		if !errors.Is(err, millrace.ErrDamaged) || !strings.Contains(err.Error(), "read x.csv: ") ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%q: got %v, want %q", text, err, says)
		}
	}
}

func TestPatches(t *testing.T) {
	f := sourcetest.Files{"x.csv": []byte("tokens,patches,count\n5,0,2\n7,12,1\n")}
	file, err := f.Open("x.csv")
	if err != nil {
		t.Fatal(err)
	}
	s, err := lengths.Format{}.Open(t.Context(), file, sources.Field{}, sources.Limits{}.Resolved(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for record, want := range []uint32{0, 0, 12, 0} {
		if got := s.Abilities().Patches.Patches(uint64(record)); got != want {
			t.Errorf("record %d: %d patches, want %d", record, got, want)
		}
	}
}
