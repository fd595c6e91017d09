package fields_test

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/parts/fields"
	"millrace/sources/sourcetest"
	"millrace/sources/values"
)

func record(t *testing.T, line string) values.Object {
	t.Helper()
	v, err := values.FromJSON([]byte(line))
	if err != nil {
		t.Fatal(err)
	}
	return v.(values.Object)
}

// TestPaths: at each object, a key that is all the rest of the path comes first.
func TestPaths(t *testing.T) {
	for _, c := range []struct {
		path, line string
		want       any
		ok         bool
	}{
		{"a", `{"a": "x"}`, "x", true},
		{"a", `{"a": null}`, nil, true},
		{"a", `{"b": "x"}`, nil, false},
		{"a.b", `{"a": {"b": "n"}}`, "n", true},
		{"a.b", `{"a.b": "l", "a": {"b": "n"}}`, "l", true},
		{"a.b", `{"a.b": null, "a": {"b": "n"}}`, nil, true},
		{"a.b.c", `{"a": {"b.c": "l", "b": {"c": "n"}}}`, "l", true},
		{"a.b.c", `{"a.b": {"c": "n"}}`, nil, false},
		{"a.b", `{"a": 5}`, nil, false},
		{"a.b", `{"a": null}`, nil, false},
	} {
		p, err := fields.Parse(c.path)
		if err != nil {
			t.Fatal(err)
		}
		if v, ok := p.Of(record(t, c.line)); v != c.want || ok != c.ok {
			t.Errorf("%s of %s: got %v, %v", c.path, c.line, v, ok)
		}
	}
	for _, path := range []string{"", ".", "a.", ".a", "a..b"} {
		if _, err := fields.Parse(path); !errors.Is(err, millrace.ErrInvalid) {
			t.Errorf("%q: got %v, want ErrInvalid", path, err)
		}
	}
}

// TestNames: names are those beside the missing part, with the path above them.
func TestNames(t *testing.T) {
	p, _ := fields.Parse("meta.body")
	for line, want := range map[string][]string{
		`{"url": 1, "id": 2}`:            {"id", "url"},
		`{"meta": {"text": 1}, "id": 2}`: {"meta.text"},
		`{"meta": null}`:                 {"meta"},
		`{}`:                             nil,
	} {
		if got := slices.Sorted(slices.Values(p.Names(record(t, line)))); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", line, got, want)
		}
	}
}

// TestReader: texts, the ways to have none, and the other values.
func TestReader(t *testing.T) {
	x, err := fields.NewReader(sources.Field{Text: "text", Others: []string{"n", "meta.l"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		record map[string]any
		text   string
		others []any
		why    string
	}{
		{map[string]any{"text": "x", "n": 1}, "x", []any{1, nil}, ""},
		{map[string]any{"text": []byte("x"), "meta.l": "d"}, "x", []any{nil, "d"}, ""},
		{map[string]any{"text": []byte(nil)}, "", []any{nil, nil}, ""},
		{map[string]any{"text": nil, "n": 1}, "", []any{1, nil}, `field "text" is null; the record has n, text`},
		{map[string]any{"n": 1}, "", []any{1, nil}, `field "text" is absent; the record has n`},
		{map[string]any{"text": 5}, "", nil, `field "text" is a number, not a text`},
		{map[string]any{"text": []any{}}, "", nil, `field "text" is a list, not a text`},
		{map[string]any{"text": "\xff"}, "", nil, `field "text" is not valid UTF-8`},
	} {
		var r sources.Record
		x.Fill(&r, sourcetest.Objects(c.record).(values.Object))
		why := ""
		if r.Err != nil {
			why = r.Err.Error()
		}
		if string(r.Text) != c.text || !reflect.DeepEqual(r.Others, c.others) || why != c.why ||
			(r.Text == nil) != (r.Err != nil) || r.Err != nil && !errors.Is(r.Err, millrace.ErrBadSample) {
			t.Errorf("%v: got %q %v %v", c.record, r.Text, r.Others, r.Err)
		}
	}
}

// TestBytes: the estimate covers the content of nested values.
func TestBytes(t *testing.T) {
	long := string(make([]byte, 1000))
	for _, v := range []any{long, []byte(long), make([]uint32, 250), []any{long},
		sourcetest.Objects(map[string]any{long: nil}),
		sourcetest.Objects([]any{map[string]any{"a": []any{long}}})} {
		if n := fields.Bytes(v); n < 1000 || n > 1200 {
			t.Errorf("%T: %d bytes", v, n)
		}
	}
}
