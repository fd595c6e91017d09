package example_test

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/parts/example"
)

func field(n protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), content)
}

func join(parts ...[]byte) (out []byte) {
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

// entry is an entry of the map, its value first if so asked.
func entry(key string, feature []byte, reversed bool) []byte {
	k, v := field(1, []byte(key)), field(2, feature)
	if reversed {
		k, v = v, k
	}
	return field(1, join(k, v))
}

func varints(packed bool, values ...int64) []byte {
	var list []byte
	for _, v := range values {
		if !packed {
			list = protowire.AppendTag(list, 1, protowire.VarintType)
		}
		list = protowire.AppendVarint(list, uint64(v))
	}
	if packed {
		list = field(1, list)
	}
	return field(3, list)
}

func floats(packed bool, values ...float32) []byte {
	var list []byte
	for _, v := range values {
		if !packed {
			list = protowire.AppendTag(list, 1, protowire.Fixed32Type)
		}
		list = protowire.AppendFixed32(list, math.Float32bits(v))
	}
	if packed {
		list = field(1, list)
	}
	return field(2, list)
}

// TestFeatures: every kind of list, packed and not; a feature without a kind; entries in both orders; the last of equal
// keys; fields that the format may get later.
func TestFeatures(t *testing.T) {
	data := field(1, join(
		entry("text", field(1, field(1, []byte("old"))), false),
		entry("n", varints(true, -5), true),
		entry("packed", varints(true, 1, 2, 300), false),
		entry("loose", varints(false, 4, 5), false),
		entry("f", floats(true, 0.5), false),
		entry("fs", floats(false, 1, 2.5), false),
		entry("binary", field(1, field(1, []byte{0xff})), false),
		entry("many", field(1, join(field(1, []byte("a")), field(1, []byte("b")))), false),
		entry("kindless", nil, false),
		entry("void", field(1, nil), false),
		entry("a.b", varints(true, 9), false),
		entry("unasked", []byte{}, false),
		protowire.AppendVarint(protowire.AppendTag(nil, 7, protowire.VarintType), 3),
		entry("text", field(1, field(1, []byte("wörd"))), true),
	))
	names := []string{"n", "packed", "loose", "f", "fs", "binary", "many", "kindless", "void", "a.b", "absent"}
	x, err := example.NewReader(example.Example, sources.Field{Text: "text", Others: names})
	if err != nil {
		t.Fatal(err)
	}
	var r sources.Record
	x.Fill(&r, data)
	want := []any{-5, []any{1, 2, 300}, []any{4, 5}, 0.5, []any{1.0, 2.5}, []byte{0xff}, []any{"a", "b"}, nil, nil, 9,
		nil}
	if r.Err != nil || string(r.Text) != "wörd" || !reflect.DeepEqual(r.Others, want) {
		t.Errorf("got %q %v %v", r.Text, r.Others, r.Err)
	}
}

// TestWithoutAText: a feature that is missing names those that exist; damage is no missing field.
func TestWithoutAText(t *testing.T) {
	x, err := example.NewReader(example.Example, sources.Field{Text: "text"})
	if err != nil {
		t.Fatal(err)
	}
	good := field(1, join(entry("body", field(1, field(1, []byte("x"))), false), entry("n", varints(true, 1), false)))
	for name, c := range map[string]struct {
		data    []byte
		says    string
		missing bool
	}{
		"absent":   {good, `field "text" is absent; the record has body, n`, true},
		"empty":    {nil, "no fields", true},
		"kindless": {field(1, entry("text", nil, false)), `field "text" is null`, true},
		"a number": {field(1, entry("text", varints(true, 1), false)), "is a number", false},
		"cut":      {good[:len(good)-3], "ends early", false},
		"text":     {[]byte("just text"), "no tf.train.Example", false},
	} {
		var r sources.Record
		x.Fill(&r, c.data)
		var missing *sources.MissingError
		if r.Err == nil || !errors.Is(r.Err, millrace.ErrBadSample) || !strings.Contains(r.Err.Error(), c.says) ||
			errors.As(r.Err, &missing) != c.missing {
			t.Errorf("%s: got %v, want %q", name, r.Err, c.says)
		}
	}
}

// TestTexts: a record that is a text has one field.
func TestTexts(t *testing.T) {
	for _, f := range []sources.Field{{Text: "text"}, {Text: "text", Others: []string{"text", "x"}}} {
		x, err := example.NewReader(example.Text, f)
		if err != nil {
			t.Fatal(err)
		}
		var r sources.Record
		if x.Fill(&r, []byte("wörd")); r.Err != nil || string(r.Text) != "wörd" ||
			len(f.Others) > 0 && !reflect.DeepEqual(r.Others, []any{"wörd", nil}) {
			t.Errorf("got %q %v %v", r.Text, r.Others, r.Err)
		}
		r = sources.Record{}
		if x.Fill(&r, nil); r.Err != nil || r.Text == nil || len(r.Text) > 0 {
			t.Errorf("an empty record: got %v %v", r.Text, r.Err)
		}
		r = sources.Record{}
		if x.Fill(&r, []byte{0xff}); !errors.Is(r.Err, millrace.ErrBadSample) {
			t.Errorf("binary: got %v", r.Err)
		}
	}
}

func FuzzExample(f *testing.F) {
	f.Add(field(1, entry("text", field(1, field(1, []byte("x"))), false)))
	f.Add(field(1, entry("n", varints(true, 1, 2), true)))
	f.Add(field(1, entry("n", floats(false, 1, 2), true)))
	f.Fuzz(func(t *testing.T, data []byte) {
		x, err := example.NewReader(example.Example, sources.Field{Text: "text", Others: []string{"n"}})
		if err != nil {
			t.Fatal(err)
		}
		var r sources.Record
		x.Fill(&r, data)
		if (r.Err == nil) != (r.Text != nil) {
			t.Fatalf("got %q and %v", r.Text, r.Err)
		}
	})
}
