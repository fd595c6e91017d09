package csv_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/csv"
	"millrace/sources/sourcetest"
)

func format(sources.FS) sources.Format { return csv.Format{} }

func read(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// fixtures are the files of another writer, with the records that its reader finds.
func fixtures(t testing.TB) []sourcetest.Fixture {
	var rows map[string][]map[string]string
	if err := json.Unmarshal(read(t, "rows.json"), &rows); err != nil {
		t.Fatal(err)
	}
	var out []sourcetest.Fixture
	add := func(name, of string, b []byte, seekable bool) {
		f := sourcetest.Fixture{Name: name, Files: sourcetest.Files{name: b}, Seekable: seekable,
			Field: sources.Field{Text: "text", Others: []string{"note", "n"}}}
		for _, row := range rows[of] {
			f.Want = append(f.Want, sourcetest.Want{Text: row["text"], Others: []any{row["note"], row["n"]}})
		}
		out = append(out, f)
	}
	for _, name := range []string{"rfc.csv", "lf.csv", "all.csv", "rows.tsv", "semi.csv"} {
		add(name, "rows", read(t, name), true)
	}
	add("loose.csv", "loose", read(t, "loose.csv"), true)
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write(read(t, "rfc.csv")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	add("rfc.csv.gz", "rows", packed.Bytes(), false)
	return append(out, bad())
}

// bad has records with too few and too many values, with bytes that are no UTF-8, and one above the limit.
func bad() sourcetest.Fixture {
	b := "text,n\na,1\nb\nc,1,2\n\xff,3\n\"" + strings.Repeat("x\n", 80) + "\",4\nlast,5"
	return sourcetest.Fixture{Name: "bad", Files: sourcetest.Files{"bad.csv": []byte(b)}, Seekable: true,
		Field: sources.Field{Text: "text"}, Limits: sources.Limits{SampleBytes: 100}, Want: []sourcetest.Want{
			{Text: "a"}, {Bad: "1 values, and the header has 2"}, {Bad: "3 values"}, {Bad: "UTF-8"},
			{Bad: "longer than sample_bytes"}, {Text: "last"},
		}}
}

func TestContract(t *testing.T) { sourcetest.Run(t, "csv", format, fixtures(t)) }

func TestDamage(t *testing.T) {
	all := fixtures(t)
	sourcetest.Damage(t, format, all[5:6], 64<<20)
	sourcetest.Damage(t, format, all[7:], 64<<20)
}

// TestHeader: a column that is not there or is there twice is an error that names the columns. So is a file
// without a header.
func TestHeader(t *testing.T) {
	for text, says := range map[string]string{
		"a,b\n1,2\n":         `no column "text"; there are: a, b`,
		"text,n,text\n1,2,3": `two columns "text"`,
		"\r\n\n":             "no header", "": "no header", "\"text": "inside a value in quotes",
		"PAR1xxxx": "it is Parquet", "{\"text\": \"a\"}\n": "begins as JSON",
	} {
		f := sourcetest.Fixture{Files: sourcetest.Files{"t.csv": []byte(text)}, Field: sources.Field{Text: "text"}}
		err := sourcetest.Open(t, format, f)
		if err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "t.csv") ||
			!errors.Is(err, millrace.ErrInvalid) && !errors.Is(err, millrace.ErrDamaged) {
			t.Errorf("%q: got %v, want %q", text, err, says)
		}
	}
}

// TestLongHeader: a header of more bytes than the first look sees is read.
func TestLongHeader(t *testing.T) {
	b := []byte("text")
	for i := range 20_000 {
		b = fmt.Appendf(b, ",column %d", i)
	}
	b = append(b, "\na"+strings.Repeat(",", 20_000)...)
	f := sourcetest.Fixture{Files: sourcetest.Files{"t.csv": b}, Field: sources.Field{Text: "text"},
		Want: []sourcetest.Want{{Text: "a"}}}
	if err := sourcetest.Open(t, format, f); err != nil {
		t.Error(err)
	}
}

func FuzzFile(f *testing.F) {
	for _, x := range fixtures(f) {
		for _, b := range x.Files {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		sourcetest.Fuzz(t, format, sourcetest.Fixture{Files: sourcetest.Files{"a.csv": b},
			Field: sources.Field{Text: "text", Others: []string{"n"}}})
	})
}
