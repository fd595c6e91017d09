package jinja

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"millrace"
	"millrace/sources/values"
)

// Values of a template are nil (None), bool, int, float64, Text, *list, *dict, *namespace, *macro, function and
// undefined.
type (
	undefined struct{ name string }
	list      struct {
		items []any
		tuple bool
	}
	dict struct {
		keys   []any
		values map[any]any // by key: a text as string
		turn   uint64      // of a counted item: the bits of its turn
	}
	namespace struct{ dict }
	function  func(x *rendering, a args) any
	args      struct {
		list  []any
		named map[string]any
		names []string // of named, in order
	}
)

func newDict() *dict { return &dict{values: map[any]any{}} }

func keyOf(v any) (any, bool) {
	switch v := v.(type) {
	case Text:
		return v.String(), true
	case int, bool, nil:
		return v, true
	}
	return nil, false
}

func (d *dict) set(key, value any) bool {
	k, ok := keyOf(key)
	if !ok {
		return false
	}
	if _, has := d.values[k]; !has {
		d.keys = append(d.keys, key)
	}
	d.values[k] = value
	return true
}

func (d *dict) get(key any) (any, bool) {
	k, ok := keyOf(key)
	if !ok {
		return nil, false
	}
	v, ok := d.values[k]
	return v, ok
}

// Object is an object of a record. Its keys have the order of the file.
type Object = values.Object

// import_ returns the template's form of a record's value.
func import_(v any, bits uint64) (any, error) {
	switch v := v.(type) {
	case nil, bool, int, float64:
		return v, nil
	case time.Time:
		return clock(v), nil
	case string:
		return mark(v, bits), nil
	case []any:
		out := &list{items: make([]any, len(v))}
		for i := range v {
			var err error
			if out.items[i], err = import_(v[i], bits); err != nil {
				return nil, err
			}
		}
		return out, nil
	case values.Number:
		return nil, millrace.Errorf(millrace.ErrBadSample,
			"a conversation has the number %.100s, and no template reads it exactly", v)
	case Object:
		out := newDict()
		for i, key := range v.Keys {
			x, err := import_(v.Values[i], bits)
			if err != nil {
				return nil, err
			}
			out.set(mark(key, bits), x)
		}
		return out, nil
	}
	return nil, millrace.Errorf(millrace.ErrBadSample,
		"a conversation has a value of kind %T, and no template reads it", v)
}

// truth returns the value as a condition.
func truth(v any) bool {
	switch v := v.(type) {
	case nil, undefined:
		return false
	case bool:
		return v
	case int:
		return v != 0
	case float64:
		return v != 0
	case Text:
		return len(v) > 0
	case *list:
		return len(v.items) > 0
	case *dict:
		return len(v.keys) > 0
	}
	return true
}

// number returns the value as a number.
func number(v any) (f float64, isInt, ok bool) {
	switch v := v.(type) {
	case bool:
		if v {
			return 1, true, true
		}
		return 0, true, true
	case int:
		return float64(v), true, true
	case float64:
		return v, false, true
	}
	return 0, false, false
}

// equal compares as Python's == does.
func equal(a, b any) bool {
	if x, _, ok := number(a); ok {
		y, _, ok := number(b)
		return ok && x == y
	}
	switch a := a.(type) {
	case nil:
		return b == nil
	case undefined:
		_, ok := b.(undefined)
		return ok
	case Text:
		t, ok := b.(Text)
		return ok && len(t) == len(a) && a.hasAt(t, 0)
	case *list:
		l, ok := b.(*list)
		return ok && l.tuple == a.tuple && slices.EqualFunc(a.items, l.items, equal)
	case *dict:
		d, ok := b.(*dict)
		if !ok || len(d.keys) != len(a.keys) {
			return false
		}
		for _, key := range a.keys {
			x, _ := a.get(key)
			if y, ok := d.get(key); !ok || !equal(x, y) {
				return false
			}
		}
		return true
	case *namespace:
		return any(a) == b
	}
	return false
}

// str returns the value as it is printed.
func str(v any) Text {
	switch v := v.(type) {
	case Text:
		return v
	case undefined:
		return nil
	}
	return repr(v)
}

// repr returns Python's repr of a value.
func repr(v any) Text {
	switch v := v.(type) {
	case nil:
		return own("None")
	case bool:
		if v {
			return own("True")
		}
		return own("False")
	case int:
		return own(strconv.Itoa(v))
	case float64:
		return own(floatText(v))
	case Text:
		return quoted(v)
	case undefined:
		return own("Undefined")
	case *list:
		ends := "[]"
		if v.tuple {
			ends = "()"
		}
		out := own(ends[:1])
		for i, item := range v.items {
			if i > 0 {
				out = append(out, own(", ")...)
			}
			out = append(out, repr(item)...)
		}
		if v.tuple && len(v.items) == 1 {
			out = append(out, ',')
		}
		return append(out, uint64(ends[1]))
	case *dict:
		out := own("{")
		for i, key := range v.keys {
			if i > 0 {
				out = append(out, own(", ")...)
			}
			x, _ := v.get(key)
			out = append(append(append(out, repr(key)...), own(": ")...), repr(x)...)
		}
		return append(out, '}')
	}
	return own("<object>")
}

// quoted returns Python's repr of a text.
func quoted(t Text) Text {
	quote := "'"
	if s := t.String(); strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = `"`
	}
	body := t.mapped(func(_ int, r rune) string {
		switch {
		case string(r) == quote || r == '\\':
			return `\` + string(r)
		case r == '\n':
			return `\n`
		case r == '\r':
			return `\r`
		case r == '\t':
			return `\t`
		case unicode.IsPrint(r):
			return string(r)
		case r < 0x100:
			return `\x` + hex(r, 2)
		case r < 0x10000:
			return `\u` + hex(r, 4)
		}
		return `\U` + hex(r, 8)
	})
	return append(append(own(quote), body...), own(quote)...)
}

func hex(r rune, digits int) string {
	s := strconv.FormatInt(int64(r), 16)
	return strings.Repeat("0", max(0, digits-len(s))) + s
}

// floatText returns Python's repr of a float.
func floatText(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case math.IsNaN(f):
		return "nan"
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// ObjectOf returns a copy of an object. That of another value is empty.
func ObjectOf(v any) Object {
	o, _ := v.(Object)
	return Object{Keys: slices.Clone(o.Keys), Values: slices.Clone(o.Values)}
}
