package jsonl

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"millrace"
	"millrace/sources"
)

func TestOtherFields(t *testing.T) {
	f, err := newFields(sources.Field{Text: "text", Others: []string{"a", "meta.lang", "meta.deep.n"}})
	if err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string][]any{
		`{"text": "x", "a": 1, "meta": {"lang": "d\u00e9", "deep": {"n": -2.5e3}}}`: {1, "dé", -2500.0},
		`{"a": true, "text": "x", "meta": {"lang": false}}`:                         {true, false, nil},
		`{"a": null, "text": "x", "meta": 5}`:                                       {nil, nil, nil},
		`{"text": "x"}`:                                                             {nil, nil, nil},
		`{"a": 1, "text": "x", "a": "2"}`:                                           {"2", nil, nil},
		`{"a": 9007199254740993, "text": "x", "meta": {"lang": 9223372036854775808, "deep": {"n": 1.0}}}`: {
			9007199254740993, 9223372036854775808.0, 1.0,
		},
	} {
		r := sources.Record{}
		if f.setContent(&r, []byte(line)); r.Err != nil || !reflect.DeepEqual(r.Others, want) || string(r.Text) != "x" {
			t.Errorf("%s: %#v %v, want %#v", line, r.Others, r.Err, want)
		}
	}
	for line, want := range map[string]string{
		`{"text": "x", "a": [1]}`:             `field "a" is no string, number or boolean`,
		`{"text": "x", "meta": {"lang": {}}}`: `field "meta.lang" is no string`,
		`{"text": "x", "a": 1e999}`:           `field "a" is no number that 64 bits hold`,
		`{"text": "x", "a": "\ud800"}`:        `lone surrogate in field "a"`,
		`{"text": 5, "a": 1}`:                 `field "text" is not a string`,
	} {
		r := sources.Record{}
		if f.setContent(&r, []byte(line)); !errors.Is(r.Err, millrace.ErrBadSample) ||
			!strings.Contains(fmt.Sprint(r.Err), want) ||
			r.Text != nil ||
			r.Others != nil {
			t.Errorf("%s: %v %v, want %q", line, r.Others, r.Err, want)
		}
	}
}

// TestReasonsNameTheFields: the reason of a record without text names the fields that it has.
func TestReasonsNameTheFields(t *testing.T) {
	many := `{"b1":1,"b2":1,"b3":1,"b4":1,"b5":1,"b6":1,"b7":1,"b8":1,"b9":1}`
	for _, c := range []struct{ field, line, want string }{
		{"text", `{"url": "u", "content": "c"}`, `no field "text"; there are: content, url`},
		{"text", `{}`, `no field "text": the record is empty`},
		{"text", many, `no field "text"; there are: b1, b2, b3, b4, b5, b6, b7, b8 and 1 more`},
		{"meta.body", `{"meta": {"text": "x"}, "url": "u"}`, `no field "meta.body"; there are: meta.text`},
		{"meta.body", `{"url": "u"}`, `no field "meta"; there are: url`},
		{"text", `{"text": null}`, `field "text" is null`},
		{"text", `{"text": 5}`, `field "text" is not a string`},
	} {
		x, err := newExtractor(c.field)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := x.text([]byte(c.line)); err == nil || err.Error() != c.want ||
			!errors.Is(err, millrace.ErrBadSample) {
			t.Errorf("%s: got %v, want %s", c.line, err, c.want)
		}
	}
}

// TestScalarsAsEncodingJSON: encoding/json finds the same values.
func TestScalarsAsEncodingJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.MapOf(rapid.SampledFrom([]string{"a", "b", "text"}), rapid.OneOf(
			rapid.String().
				AsAny(),
			rapid.Float64().AsAny(),
			rapid.Bool().AsAny(),
			rapid.Just[any](nil),
			rapid.Int32().AsAny(),
		)).Draw(t, "values")
		line, err := json.Marshal(values)
		if err != nil {
			t.Fatal(err)
		}
		x, _ := newExtractor("a")
		got, err := x.scalar(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		var want map[string]any
		_ = json.Unmarshal(line, &want)
		if n, ok := got.(int); ok {
			got = float64(n)
		}
		if got != want["a"] {
			t.Fatalf("%s: %#v, want %#v", line, got, want["a"])
		}
	})
}
