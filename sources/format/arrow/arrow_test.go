package arrow_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/arrow"
	"millrace/sources/sourcetest"
)

func format(sources.FS) sources.Format { return arrow.Format{} }

func read(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// rowsOf returns the rows that the writer wrote.
func rowsOf(t testing.TB, name string) (rows []map[string]any) {
	t.Helper()
	if err := json.Unmarshal(read(t, name), &rows); err != nil {
		t.Fatal(err)
	}
	return rows
}

// files are the files of the writers, with the rows in them.
func files() map[string]string {
	return map[string]string{
		"plain.arrow": "rows.json", "v4.arrow": "rows.json", "file.arrow": "rows.json", "lz4.arrow": "rows.json",
		"zstd.feather": "rows.json", "empty-batches.arrow": "rows.json", "no-end.arrow": "rows.json",
		"large.arrow": "large-rows.json", "views.arrow": "rows.json", "deltas.arrow": "words.json",
		"replaced.arrow": "words.json", "deltas-file.arrow": "words.json",
	}
}

func fixtures(t testing.TB) []sourcetest.Fixture {
	var out []sourcetest.Fixture
	for name, rows := range files() {
		f := sourcetest.Fixture{Name: name, Files: sourcetest.Files{name: read(t, name)},
			Field: sources.Field{Text: "text"}, Seekable: true}
		for _, row := range rowsOf(t, rows) {
			w := sourcetest.Want{Bad: "is null"}
			if text, ok := row["text"].(string); ok {
				w = sourcetest.Want{Text: text}
			}
			f.Want = append(f.Want, w)
		}
		out = append(out, f)
	}
	return append(out, sourcetest.Fixture{Name: "empty", Files: sourcetest.Files{"empty.arrow": read(t, "empty.arrow")},
		Field: sources.Field{Text: "text"}, Seekable: true})
}

func TestContract(t *testing.T) { sourcetest.Run(t, "arrow", format, fixtures(t)) }

func TestDamage(t *testing.T) {
	for _, f := range fixtures(t) {
		switch f.Name {
		case "plain.arrow", "lz4.arrow", "deltas.arrow", "views.arrow":
			f.Field.Others = []string{"text"}
			sourcetest.Damage(t, format, []sourcetest.Fixture{f}, 64<<20)
		case "large.arrow", "zstd.feather":
			f.Field.Others = []string{"meta", "messages", "ids", "pairs"}
			sourcetest.Damage(t, format, []sourcetest.Fixture{f}, 64<<20)
		}
	}
}

// plain returns a value as JSON has it.
func plain(v any) any {
	switch v := v.(type) {
	case int:
		return float64(v)
	case []uint32:
		out := []any{}
		for _, n := range v {
			out = append(out, float64(n))
		}
		return out
	case []any:
		out := []any{}
		for _, x := range v {
			out = append(out, plain(x))
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for k, x := range v {
			out[k] = plain(x)
		}
		return out
	}
	return v
}

func open(t testing.TB, name string, field sources.Field, lim sources.Limits) (sources.Shard, error) {
	t.Helper()
	f, err := sources.OSFS().Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return arrow.Format{}.Open(t.Context(), f, field, lim, nil)
}

// TestValues: nested columns have the values that the writer was given, in order and at random.
func TestValues(t *testing.T) {
	columns := []string{"text", "n", "score", "ok", "meta", "messages", "ids", "pairs", "meta.lang", "meta.tags"}
	for name, rows := range files() {
		others := columns
		switch rows {
		case "words.json":
			others = []string{"text", "more"}
		case "rows.json":
			if name == "views.arrow" {
				continue // TestViews
			}
		}
		s, err := open(t, name, sources.Field{Others: others}, sources.Limits{}.Resolved())
		if err != nil {
			t.Fatal(err)
		}
		want := rowsOf(t, rows)
		check := func(r sources.Record) error {
			if r.Err != nil || r.Text != nil {
				return fmt.Errorf("record %d: %q, %v", r.Number, r.Text, r.Err)
			}
			for i, column := range others {
				w := any(want[r.Number])
				for part := range strings.SplitSeq(column, ".") {
					if m, ok := w.(map[string]any); ok {
						w = m[part]
					}
				}
				if got := plain(sourcetest.Maps(r.Others[i])); !reflect.DeepEqual(got, w) {
					return fmt.Errorf("record %d: %s is %v, want %v", r.Number, column, got, w)
				}
			}
			return nil
		}
		if err := s.Scan(t.Context(), 0, check); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, n := range []uint64{33, 0, 17, 9, 10} {
			if err := s.Read(t.Context(), []uint64{n}, check); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestIDs: a list of whole numbers is ids, and binary stays binary.
func TestIDs(t *testing.T) {
	s, err := open(t, "plain.arrow", sources.Field{Others: []string{"ids"}}, sources.Limits{}.Resolved())
	if err != nil {
		t.Fatal(err)
	}
	err = s.Read(t.Context(), []uint64{11}, func(r sources.Record) error {
		if want := []any{[]uint32{187, 188, 189, 190, 191}}; !reflect.DeepEqual(r.Others, want) {
			t.Errorf("got %v, want %v", r.Others, want)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if s, err = open(t, "views.arrow", sources.Field{Others: []string{"n"}}, sources.Limits{}.Resolved()); err != nil {
		t.Fatal(err)
	}
	err = s.Scan(t.Context(), 0, func(r sources.Record) error {
		if want := []any{[]byte{0xff, 0}}; !reflect.DeepEqual(r.Others, want) {
			t.Errorf("got %v, want %v", r.Others, want)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestLimit: values above sample_bytes cost their record.
func TestLimit(t *testing.T) {
	for _, field := range []sources.Field{{Text: "text"}, {Others: []string{"messages"}}} {
		s, err := open(t, "plain.arrow", field, sources.Limits{SampleBytes: 40})
		if err != nil {
			t.Fatal(err)
		}
		bad := 0
		err = s.Scan(t.Context(), 0, func(r sources.Record) error {
			if r.Err != nil && strings.Contains(r.Err.Error(), "sample_bytes") {
				bad++
			}
			return nil
		})
		if err != nil || bad < 5 {
			t.Errorf("%v: %d records are too long: %v", field, bad, err)
		}
	}
}

// TestColumns: the error of a column that is not there, or cannot be a text, names the columns.
func TestColumns(t *testing.T) {
	for column, says := range map[string]string{
		"body": "there are: text, n, score", "meta.no": "there are: meta.lang, meta.tags", "n": "column \"n\" is int",
		"messages": "is list", "messages.role": "is list and has no field", "a..b": "empty",
	} {
		_, err := open(t, "plain.arrow", sources.Field{Text: column}, sources.Limits{}.Resolved())
		if !errors.Is(err, millrace.ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want %q", column, err, says)
		}
	}
}

func FuzzOpen(f *testing.F) {
	for name := range files() {
		f.Add(read(f, name))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, field := range []sources.Field{{Text: "text"}, {Others: []string{"text", "messages", "ids", "more"}}} {
			sourcetest.Fuzz(t, format, sourcetest.Fixture{Files: sourcetest.Files{"a.arrow": b}, Field: field})
		}
	})
}

// TestNothingFollowsTheEnd: zeros in place of a message are no end, and bytes behind the end are an error.
func TestNothingFollowsTheEnd(t *testing.T) {
	plain, old := read(t, "plain.arrow"), read(t, "v4.arrow")
	second := bytes.Index(plain[1:], []byte{0xff, 0xff, 0xff, 0xff}) + 1
	for says, b := range map[string][]byte{
		"zeros at byte":             zeroed(plain, second, 300),
		"its columns have others":   zeroed(read(t, "saved/data-00000-of-00002.arrow"), 812, 472),
		"follow its end marker, at": append(bytes.Clone(plain), plain...),
		"follow its end marker":     append(bytes.Clone(old), 0, 0, 1),
	} {
		f := sourcetest.Fixture{Files: sourcetest.Files{"x.arrow": b}, Field: sources.Field{Text: "text"}}
		err := sourcetest.Open(t, format, f)
		if !errors.Is(err, millrace.ErrDamaged) || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want ErrDamaged with %q", err, says)
		}
	}
	file := sourcetest.Files{"x.arrow": append(bytes.Clone(plain), make([]byte, 40_000)...)}
	if err := sourcetest.Open(t, format, sourcetest.Fixture{Files: file, Field: sources.Field{Text: "text"},
		Want: fixtureOf(t, "plain.arrow").Want}); err != nil {
		t.Errorf("zeros behind the end: %v", err)
	}
}

func zeroed(b []byte, from, n int) []byte {
	out := bytes.Clone(b)
	clear(out[from : from+n])
	return out
}

func fixtureOf(t *testing.T, name string) sourcetest.Fixture {
	for _, f := range fixtures(t) {
		if f.Name == name {
			return f
		}
	}
	t.Fatalf("there is no fixture %s", name)
	return sourcetest.Fixture{}
}
