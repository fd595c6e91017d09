package jsonl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"millrace"
	"millrace/sources"
	"millrace/sources/sourcetest"
	"millrace/sources/values"
)

func TestOtherFields(t *testing.T) {
	f, err := newParser(sources.Field{Text: "text", Others: []string{"a", "meta.lang", "meta.deep.n"}})
	if err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string][]any{
		`{"text": "x", "a": 1, "meta": {"lang": "d\u00e9", "deep": {"n": -2.5e3}}}`: {1, "dé", -2500.0},
		`{"a": true, "text": "x", "meta": {"lang": false}}`:                         {true, false, nil},
		`{"a": null, "text": "x", "meta": 5}`:                                       {nil, nil, nil},
		`{"text": "x"}`:                                                             {nil, nil, nil},
		`{"a": 1, "text": "x", "a": "2"}`:                                           {"2", nil, nil},
		`{"a": [1, {"b": [], "c": {}}, "\n"], "text": "x", "meta": {"lang": {"d": null}}}`: {
			[]any{1, map[string]any{"b": []any{}, "c": map[string]any{}}, "\n"}, map[string]any{"d": nil}, nil,
		},
		`{"meta": {"lang": "n", "deep.n": 2}, "text": "x", "meta.lang": "l"}`: {nil, "l", 2},
		`{"a": 9007199254740993, "text": "x", "meta": {"lang": 9223372036854775808, "deep": {"n": 1.0}}}`: {
			9007199254740993, values.Number("9223372036854775808"), 1.0,
		},
	} {
		r := sources.Record{}
		f.SetContent(&r, []byte(line))
		isEqual := reflect.DeepEqual(sourcetest.Maps(r.Others), any(want))
		if r.Err != nil || !isEqual || string(r.Text) != "x" {
			t.Errorf("%s: %#v %v, want %#v", line, r.Others, r.Err, want)
		}
	}
	for line, want := range map[string]string{
		`{"text": "x", "a": 1e999}`:             `field "a" is no number that 64 bits hold`,
		`{"text": "x", "a": "\ud800"}`:          `lone surrogate in field "a"`,
		`{"text": "x", "a": [{"b": "\ud800"}]}`: `lone surrogate in field "a"`,
		`{"text": "x", "a": {"\udc00": 1}}`:     `lone surrogate in field "a"`,
		`{"a": [1e999]}`:                        `field "a" is no number that 64 bits hold`,
		`{"text": 5, "a": 1}`:                   `field "text" is not a string`,
	} {
		r := sources.Record{}
		if f.SetContent(&r, []byte(line)); !errors.Is(r.Err, millrace.ErrBadSample) ||
			!strings.Contains(fmt.Sprint(r.Err), want) ||
			r.Text != nil ||
			r.Others != nil {
			t.Errorf("%s: %v %v, want %q", line, r.Others, r.Err, want)
		}
	}
}

// TestMissingText: a record without the text says how, names the fields that it has, and keeps its other values.
func TestMissingText(t *testing.T) {
	many := `{"b1":1,"b2":1,"b3":1,"b4":1,"b5":1,"b6":1,"b7":1,"b8":1,"b9":1}`
	for _, c := range []struct {
		field, line string
		how         sources.Missing
		want        string
	}{
		{"text", `{"url": "u", "content": "c"}`, sources.Absent, `field "text" is absent; the record has content, url`},
		{"text", `{}`, sources.Absent, `field "text" is absent; the record has no fields`},
		{"text", many, sources.Absent,
			`field "text" is absent; the record has b1, b2, b3, b4, b5, b6, b7, b8 and 1 more`},
		{"meta.body", `{"meta": {"text": "x"}, "url": "u"}`, sources.Absent,
			`field "meta.body" is absent; the record has meta.text`},
		{"meta.body", `{"url": "u"}`, sources.Absent, `field "meta.body" is absent; the record has url`},
		{"meta.body", `{"meta": 5}`, sources.Absent, `field "meta.body" is absent; the record has meta`},
		{"text", `{"text": null, "url": "u"}`, sources.Null, `field "text" is null; the record has text, url`},
	} {
		p, err := newParser(sources.Field{Text: c.field, Others: []string{"url"}})
		if err != nil {
			t.Fatal(err)
		}
		var r sources.Record
		p.SetContent(&r, []byte(c.line))
		var missing *sources.MissingError
		if !errors.As(r.Err, &missing) || missing.How != c.how || r.Err.Error() != c.want ||
			!errors.Is(r.Err, millrace.ErrBadSample) || len(r.Others) != 1 || r.Text != nil {
			t.Errorf("%s: got %v with %v, want %s", c.line, r.Err, r.Others, c.want)
		}
	}
}

// TestWithoutText: a source without a text field gets the other values, and invalid lines are bad all the same.
func TestWithoutText(t *testing.T) {
	for _, others := range [][]string{nil, {"a"}} {
		p, err := newParser(sources.Field{Others: others})
		if err != nil {
			t.Fatal(err)
		}
		var r sources.Record
		if p.SetContent(&r, []byte(`{"a": [1]}`)); r.Err != nil || r.Text != nil || len(r.Others) != len(others) {
			t.Errorf("%v: got %v, %v", others, r.Others, r.Err)
		}
		if p.SetContent(&r, []byte(`{"a": [1}`)); r.Err == nil {
			t.Errorf("%v: an invalid line is good", others)
		}
	}
}

// TestManyValues: the values of one record are bounded.
func TestManyValues(t *testing.T) {
	x, err := newExtractor("a")
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range map[int]bool{mostValues - 1: true, mostValues: false} {
		line := `{"a":[` + strings.Repeat("0,", n-1) + `0]}`
		if _, err := x.any([]byte(line)); (err == nil) != want {
			t.Errorf("%d values: %v", n, err)
		}
	}
}

// floats returns a value with floats in place of ints, as encoding/json decodes it.
func floats(v any) any {
	switch v := v.(type) {
	case int:
		return float64(v)
	case values.Number:
		return v.Float()
	case []any:
		for i := range v {
			v[i] = floats(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = floats(v[key])
		}
	}
	return v
}

// TestValuesAsEncodingJSON: encoding/json finds the same values.
func TestValuesAsEncodingJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		drawn := rapid.MapOf(rapid.SampledFrom([]string{"a", "b", "text"}), rapid.OneOf(
			rapid.String().
				AsAny(),
			rapid.Float64().AsAny(),
			rapid.Bool().AsAny(),
			rapid.Just[any](nil),
			rapid.Int32().AsAny(),
			rapid.SliceOf(rapid.Int32()).AsAny(),
			rapid.SliceOf(rapid.MapOf(rapid.String(), rapid.SliceOf(rapid.String()))).AsAny(),
		)).Draw(t, "values")
		line, err := json.Marshal(drawn)
		if err != nil {
			t.Fatal(err)
		}
		x, _ := newExtractor("a")
		got, err := x.any(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		var want map[string]any
		_ = json.Unmarshal(line, &want)
		if !reflect.DeepEqual(floats(sourcetest.Maps(got)), want["a"]) {
			t.Fatalf("%s: %#v, want %#v", line, got, want["a"])
		}
	})
}

// FuzzValues compares values with encoding/json: both read a line, or neither does.
func FuzzValues(f *testing.F) {
	for _, s := range append(seeds, `{"a": [1, {"b": [2.5, null, true, "\n"]}, {}], "c": 1}`,
		`{"a": {"x": []}, "a": -0}`) {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		x, err := newExtractor("a")
		if err != nil || bytes.IndexByte(line, '\n') >= 0 {
			return
		}
		got, err := x.any(line)
		if err != nil {
			if !errors.Is(err, millrace.ErrBadSample) {
				t.Fatalf("%q: %v is no bad sample", line, err)
			}
			return
		}
		var want map[string]any
		if err := json.Unmarshal(line, &want); err != nil {
			if strings.Contains(err.Error(), "cannot unmarshal number") { // in a field that is not read
				return
			}
			t.Fatalf("%q: got %v, encoding/json says %v", line, got, err)
		}
		if !strings.Contains(string(line), `\u`) && !reflect.DeepEqual(floats(sourcetest.Maps(got)), want["a"]) {
			t.Fatalf("%q: got %#v, want %#v", line, got, want["a"])
		}
	})
}

// TestOrderOfKeys: objects keep the order of their keys. The last of equal keys counts, at the place of the first.
func TestOrderOfKeys(t *testing.T) {
	p, err := newParser(sources.Field{Others: []string{"a", "b"}})
	if err != nil {
		t.Fatal(err)
	}
	r := sources.Record{}
	p.SetContent(&r, []byte(`{"b": {"z": 1, "a": 2, "z": {"y": 3}}, "a": [{"z": 1, "a": 18446744073709551616}]}`))
	got, err := json.Marshal(r.Others)
	if want := `[[{"z":1,"a":18446744073709551616}],{"z":{"y":3},"a":2}]`; err != nil || string(got) != want {
		t.Errorf("got %s, %v %v", got, err, r.Err)
	}
}
