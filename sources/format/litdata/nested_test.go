package litdata

import (
	"millrace/sources/sourcetest"
	"reflect"
	"strings"
	"testing"
)

// TestNestedValues: the tags that the files of testdata do not have, and values that end early.
func TestNestedValues(t *testing.T) {
	text := func(s string) string { return string([]byte{byte(len(s)), 0, 0, 0}) + s }
	dict := "\x05\x02\x00\x00\x00" + text("a") + "\x07" + text("x") + text("b") + "\x0b"
	for in, want := range map[string]any{
		dict:                                   map[string]any{"a": "x", "b": nil},
		"\x00" + text(`{"k": [1, 2.5]}`):       map[string]any{"k": []any{1, 2.5}},
		`[1, "x"]`:                             []any{1, "x"},
		"\x08\xff\xff\xff\xff\xff\xff\xff\xff": -1,
		"\x09\x00\x00\x00\x00\x00\x00\xe0\x3f": .5,
		"\x0a\x01":                             true,
		"\x01\x00\x00\x00\x00":                 []any{},
	} {
		if got, err := nestedValue([]byte(in)); err != nil || !reflect.DeepEqual(sourcetest.Maps(got), want) {
			t.Errorf("%q: got %#v, %v, want %#v", in, got, err, want)
		}
	}
	for in, says := range map[string]string{
		dict[:len(dict)-1]: "ends early", dict + "x": "1 bytes follow", "\x01\xff\xff\xff\xff": "4294967295 values",
		"\x06\xff\xff\xff\xff\x00\x00\x00\x00": "4294967295 dicts", "\x1f": "tag 31",
		strings.Repeat("\x05\x01\x00\x00\x00\x00\x00\x00\x00", 100): "nested deeper",
	} {
		if _, err := nestedValue([]byte(in)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: got %v, want %q", in, err, says)
		}
	}
}
