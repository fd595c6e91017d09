package jinja

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// jsonForm has the options of Python's json.dumps.
type jsonForm struct {
	ascii, sorted bool
	indent        string
	isIndented    bool
	comma, colon  Text
}

// write appends a value. ok is false if json.dumps raises an error.
func (f *jsonForm) write(out Text, v any, depth int) (_ Text, ok bool) {
	switch v := v.(type) {
	case nil:
		return append(out, own("null")...), true
	case bool:
		return append(out, own(strconv.FormatBool(v))...), true
	case float64:
		s := floatText(v)
		switch {
		case math.IsNaN(v):
			s = "NaN"
		case math.IsInf(v, 0):
			s = strings.Replace(s, "inf", "Infinity", 1)
		}
		return append(out, own(s)...), true
	case int:
		return append(out, repr(v)...), true
	case Text:
		return f.text(out, v), true
	case *list:
		return f.group(out, '[', ']', len(v.items), depth, func(out Text, i int) (Text, bool) {
			return f.write(out, v.items[i], depth+1)
		})
	case *dict:
		keys := v.keys
		if f.sorted {
			keys = slices.Clone(keys)
			slices.SortFunc(keys, func(a, b any) int { return strings.Compare(str(a).String(), str(b).String()) })
		}
		return f.group(out, '{', '}', len(keys), depth, func(out Text, i int) (Text, bool) {
			x, _ := v.get(keys[i])
			key, isText := keys[i].(Text)
			if !isText {
				key, _ = f.write(nil, keys[i], 0)
			}
			return f.write(append(f.text(out, key), f.colon...), x, depth+1)
		})
	}
	return out, false
}

func (f *jsonForm) group(
	out Text, open, shut uint64, n, depth int, item func(out Text, i int) (Text, bool),
) (_ Text, ok bool) {
	if depth > mostDepth {
		return out, false
	}
	out = append(out, open)
	for i := range n {
		if i > 0 {
			out = append(out, f.comma...)
		}
		out = f.line(out, depth+1)
		if out, ok = item(out, i); !ok {
			return out, false
		}
	}
	if n > 0 {
		out = f.line(out, depth)
	}
	return append(out, shut), true
}

func (f *jsonForm) line(out Text, depth int) Text {
	if !f.isIndented {
		return out
	}
	return append(append(out, '\n'), own(strings.Repeat(f.indent, depth))...)
}

func (f *jsonForm) text(out, t Text) Text {
	out = append(out, '"')
	out = append(out, t.mapped(func(_ int, r rune) string {
		switch r {
		case '"', '\\':
			return `\` + string(r)
		case '\n':
			return `\n`
		case '\r':
			return `\r`
		case '\t':
			return `\t`
		case '\b':
			return `\b`
		case '\f':
			return `\f`
		}
		switch {
		case r < 0x20, f.ascii && r >= 0x7f && r < 0x10000 && r != 0x7f:
			return `\u` + hex(r, 4)
		case f.ascii && r >= 0x10000:
			r -= 0x10000
			return `\u` + hex(0xd800+r>>10, 4) + `\u` + hex(0xdc00+r&0x3ff, 4)
		}
		return string(r)
	})...)
	return append(out, '"')
}
