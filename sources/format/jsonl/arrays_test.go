package jsonl_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/jsonl"
	"millrace/sources/sourcetest"
)

func arrays(sources.FS) sources.Format { return jsonl.Arrays{Windows: shared} }

// arrayFixtures are arrays and objects as programs write them.
func arrayFixtures(t testing.TB) []sourcetest.Fixture {
	var records []map[string]any
	var want []sourcetest.Want
	for i := range 150 {
		text := strings.Repeat(fmt.Sprintf("ünï \"%d\" [] {} \\ , \n", i), i%7)
		records = append(records, map[string]any{"text": text, "n": []any{1, map[string]any{"a": "]}"}}})
		want = append(want, sourcetest.Want{Text: text})
	}
	tight, err := json.Marshal(records)
	if err != nil {
		t.Fatal(err)
	}
	wide, err := json.MarshalIndent(records, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	var objects []byte
	for _, r := range records {
		b, err := json.MarshalIndent(r, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		objects = append(append(objects, b...), '\n')
	}
	field := sources.Field{Text: "text", Others: []string{"n"}}
	make := func(name string, b []byte, w []sourcetest.Want, seekable bool) sourcetest.Fixture {
		f := sourcetest.Fixture{Name: name, Files: sourcetest.Files{name: b}, Field: field, Want: w, Seekable: seekable,
			Limits: sources.Limits{SampleBytes: 1 << 10}}
		for i := range f.Want {
			f.Want[i].Others = []any{[]any{1, map[string]any{"a": "]}"}}}
		}
		return f
	}
	mixed := `[1, "a]", {"text": "b"} , [], null,{"text":"` + strings.Repeat("x", 2000) + `"},{"text": "c"},-2.5]`
	odd := sourcetest.Fixture{Name: "odd", Files: sourcetest.Files{"odd.json": []byte(mixed)}, Seekable: true,
		Field: sources.Field{Text: "text"}, Limits: sources.Limits{SampleBytes: 1 << 10}, Want: []sourcetest.Want{
			{Bad: "not a JSON object"}, {Bad: "not a JSON object"}, {Text: "b"}, {Bad: "not a JSON object"},
			{Bad: "not a JSON object"}, {Bad: "longer than sample_bytes"}, {Text: "c"}, {Bad: "not a JSON object"},
		}}
	return []sourcetest.Fixture{
		make("tight.json", tight, want, true), make("wide.json", append([]byte("\xef\xbb\xbf"), wide...), want, true),
		make("objects.json", objects, want, true), make("tight.json.gz", gzipped(t, tight), want, false),
		make("empty.json", []byte(" [ ] \n"), nil, true), odd,
	}
}

func TestArrays(t *testing.T) { sourcetest.Run(t, "json", arrays, arrayFixtures(t)) }

func TestArrayDamage(t *testing.T) { sourcetest.Damage(t, arrays, arrayFixtures(t)[5:], 64<<20) }

// TestNoArray: the error of a file that is no array names the byte.
func TestNoArray(t *testing.T) {
	for text, says := range map[string]string{
		`[{"text": "a"}`: "ends inside its array", `[{"text": "a"} {"text": "b"}]`: "byte 15: want an element",
		`[{"text": "a"}] x`: "byte 16", `"a"`: "byte 0", `[,]`: "byte 1",
		`[{"text`: "ends inside", `{"a": [`: "ends inside",
	} {
		f := sourcetest.Fixture{Files: sourcetest.Files{"t.json": []byte(text)}, Field: sources.Field{Text: "text"}}
		err := sourcetest.Open(t, arrays, f)
		if !errors.Is(err, millrace.ErrDamaged) || !strings.Contains(err.Error(), says) ||
			!strings.Contains(err.Error(), "t.json") {
			t.Errorf("%q: got %v, want %q", text, err, says)
		}
	}
}

func FuzzArrays(f *testing.F) {
	for _, x := range arrayFixtures(f) {
		for _, b := range x.Files {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		sourcetest.Fuzz(t, arrays, sourcetest.Fixture{Files: sourcetest.Files{"a.json": b},
			Field: sources.Field{Text: "text", Others: []string{"n"}}})
	})
}
