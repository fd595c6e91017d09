package jinja

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

type filterFunc func(x *rendering, v any, a args) any

// filterOf returns a filter, nil if there is none.
func filterOf(name string) filterFunc {
	switch name {
	case "map":
		return mapped
	case "join":
		return joined
	case "select", "reject":
		return func(x *rendering, v any, a args) any { return x.chosen(v, a, name == "select", false) }
	case "selectattr", "rejectattr":
		return func(x *rendering, v any, a args) any { return x.chosen(v, a, name == "selectattr", true) }
	case "trim":
		return func(x *rendering, v any, a args) any { return str(v).trimmed(a.text(x, 0, "chars"), true, true) }
	case "upper", "lower", "title", "capitalize":
		return func(x *rendering, v any, a args) any { return textMethods[name](x, str(v), a) }
	case "replace":
		return func(x *rendering, v any, a args) any { return textMethods[name](x, str(v), a) }
	}
	return plainFilters[name]
}

var plainFilters = map[string]filterFunc{
	"safe":   func(_ *rendering, v any, _ args) any { return v },
	"string": func(_ *rendering, v any, _ args) any { return str(v) },
	"length": length, "count": length,
	"default": otherwise, "d": otherwise,
	"tojson":   toJSON,
	"first":    func(x *rendering, v any, _ args) any { return x.edge(v, true) },
	"last":     func(x *rendering, v any, _ args) any { return x.edge(v, false) },
	"list":     func(x *rendering, v any, _ args) any { return &list{items: x.must(v)} },
	"items":    items,
	"dictsort": dictSort,
	"reverse": func(x *rendering, v any, _ args) any {
		if t, ok := v.(Text); ok {
			t = slices.Clone(t)
			slices.Reverse(t)
			return t
		}
		out := slices.Clone(x.must(v))
		slices.Reverse(out)
		return &list{items: out}
	},
	"sort":   sorted,
	"unique": unique,
	"int":    toInt,
	"float":  toFloat,
	"abs": func(x *rendering, v any, _ args) any {
		if less, _, _ := order(v, 0); less {
			return x.calculate("-", 0, v)
		}
		return v
	},
	"round": func(x *rendering, v any, a args) any {
		f, _, ok := number(v)
		if !ok || len(a.list)+len(a.named) > 0 {
			return x.fail("round takes a number, and no arguments are read")
		}
		return math.RoundToEven(f)
	},
	"sum": func(x *rendering, v any, _ args) any {
		var all any = 0
		for _, item := range x.must(v) {
			all = x.calculate("+", all, item)
		}
		return all
	},
	"min":    func(x *rendering, v any, _ args) any { return x.extreme(v, true) },
	"max":    func(x *rendering, v any, _ args) any { return x.extreme(v, false) },
	"indent": indent,
}

// joined is the filter join.
func joined(x *rendering, v any, a args) any {
	if name := a.text(x, 1, "attribute"); name != nil {
		v = mapped(x, v, args{named: map[string]any{"attribute": name}})
	}
	return x.join(v, a.text(x, 0, "d"))
}

// must returns the items of a value that has to have some.
func (x *rendering) must(v any) []any {
	items, ok := x.items(v)
	if !ok {
		x.fail("%s has no items", kind(v))
	}
	return items
}

func (x *rendering) edge(v any, first bool) any {
	items := x.must(v)
	switch {
	case len(items) == 0:
		return undefined{"an item of an empty list"}
	case first:
		return items[0]
	}
	return items[len(items)-1]
}

func (x *rendering) extreme(v any, least bool) any {
	var best any = undefined{"an item of an empty list"}
	for i, item := range x.must(v) {
		less, same, ok := order(item, best)
		if i > 0 && !ok {
			return x.fail("min and max compare values of different kinds")
		}
		if i == 0 || less == least && !same {
			best = item
		}
	}
	return best
}

func length(x *rendering, v any, _ args) any {
	switch v := v.(type) {
	case Text:
		return len(v)
	case *list:
		return len(v.items)
	case *dict:
		return len(v.keys)
	case undefined:
		return 0
	}
	return x.fail("%s has no length", kind(v))
}

func otherwise(_ *rendering, v any, a args) any {
	_, isUndefined := v.(undefined)
	if isUndefined || truth(a.get(1, "boolean", false)) && !truth(v) {
		return a.get(0, "default_value", Text{})
	}
	return v
}

func toJSON(x *rendering, v any, a args) any {
	f := jsonForm{
		ascii: truth(a.get(0, "ensure_ascii", false)), sorted: truth(a.get(3, "sort_keys", false)),
		comma: own(", "), colon: own(": "),
	}
	switch by := a.get(1, "indent", nil).(type) {
	case int:
		f.isIndented, f.indent, f.comma = true, strings.Repeat(" ", max(0, min(by, mostDepth))), own(",")
	case Text:
		f.isIndented, f.indent, f.comma = true, by.String(), own(",")
	}
	if l, ok := a.get(2, "separators", nil).(*list); ok && len(l.items) == 2 {
		f.comma, f.colon = str(l.items[0]), str(l.items[1])
	}
	out, ok := f.write(nil, v, 0)
	if !ok {
		return x.fail("tojson takes %s", kind(v))
	}
	return x.made(out)
}

func items(x *rendering, v any, _ args) any {
	switch v := v.(type) {
	case *dict:
		return v.items()
	case undefined:
		return &list{}
	}
	return x.fail("items takes %s", kind(v))
}

func dictSort(x *rendering, v any, a args) any {
	d, ok := v.(*dict)
	if !ok || len(a.list)+len(a.named) > 0 {
		return x.fail("dictsort takes an object, and no arguments are read")
	}
	out := d.items()
	slices.SortStableFunc(out.items, func(a, b any) int {
		return strings.Compare(
			strings.ToLower(str(a.(*list).items[0]).String()), strings.ToLower(str(b.(*list).items[0]).String()))
	})
	return out
}

func sorted(x *rendering, v any, a args) any {
	by := a.text(x, 2, "attribute")
	key := func(v any) any {
		if by != nil {
			v = x.path(v, by.String())
		}
		if t, ok := v.(Text); ok && !truth(a.get(1, "case_sensitive", false)) {
			return t.lower()
		}
		return v
	}
	out := slices.Clone(x.must(v))
	slices.SortStableFunc(out, func(v, w any) int {
		less, same, ok := order(key(v), key(w))
		x.spend(1)
		switch {
		case !ok:
			x.fail("sort compares values of different kinds")
			return 0
		case same:
			return 0
		case less:
			return -1
		}
		return 1
	})
	if truth(a.get(0, "reverse", false)) {
		slices.Reverse(out)
	}
	return &list{items: out}
}

func unique(x *rendering, v any, _ args) any {
	out := &list{}
	for _, item := range x.must(v) {
		if !x.contains(out, item) {
			out.items = append(out.items, item)
		}
	}
	return out
}

func toInt(x *rendering, v any, a args) any {
	switch v := v.(type) {
	case Text:
		if n, err := strconv.Atoi(strings.TrimSpace(v.String())); err == nil {
			return n
		}
	default:
		if f, _, ok := number(v); ok && math.Abs(f) < 1<<53 {
			return int(f)
		}
	}
	return a.int(x, 0, "default", 0)
}

func toFloat(_ *rendering, v any, a args) any {
	if t, ok := v.(Text); ok {
		if f, err := strconv.ParseFloat(strings.TrimSpace(t.String()), 64); err == nil {
			return f
		}
	}
	if f, _, ok := number(v); ok {
		return f
	}
	return a.get(0, "default", 0.0)
}

func indent(x *rendering, v any, a args) any {
	by := own(strings.Repeat(" ", max(0, min(a.int(x, 0, "width", 4), mostDepth))))
	first, blank := truth(a.get(1, "first", false)), truth(a.get(2, "blank", false))
	var out Text
	for i, line := range append(str(v), '\n').split(own("\n"), -1) {
		if i > 0 {
			out = append(out, '\n')
		}
		if (i > 0 || first) && (len(line) > 0 || blank || i == 0) {
			out = append(out, by...)
		}
		out = append(out, line...)
	}
	return x.made(out[:len(out)-1])
}

// path returns an attribute by a dotted name.
func (x *rendering) path(v any, name string) any {
	for part := range strings.SplitSeq(name, ".") {
		if n, err := strconv.Atoi(part); err == nil {
			v = x.subscript(v, n)
		} else {
			v = x.subscript(v, own(part))
		}
	}
	return v
}

// mapped is the filter map.
func mapped(x *rendering, v any, a args) any {
	out := &list{}
	name := a.text(x, -1, "attribute")
	var apply filterFunc
	if name == nil {
		if len(a.list) == 0 {
			return x.fail("map has no filter")
		}
		if apply = filterOf(str(a.list[0]).String()); apply == nil {
			return x.fail("map has an unknown filter")
		}
		a.list = a.list[1:]
	}
	for _, item := range x.must(v) {
		if !x.spend(1) {
			break
		}
		if apply != nil {
			out.items = append(out.items, apply(x, item, a))
			continue
		}
		got := x.path(item, name.String())
		if _, isUndefined := got.(undefined); isUndefined {
			got = a.get(9, "default", got)
		}
		out.items = append(out.items, got)
	}
	return out
}

// chosen are the filters select, reject, selectattr and rejectattr.
func (x *rendering) chosen(v any, a args, keep, byAttribute bool) any {
	name := ""
	if byAttribute {
		if len(a.list) == 0 {
			return x.fail("selectattr has no attribute")
		}
		name, a.list = str(a.list[0]).String(), a.list[1:]
	}
	check := func(_ *rendering, v any, _ args) bool { return truth(v) }
	if len(a.list) > 0 {
		var ok bool
		if check, ok = tests[str(a.list[0]).String()]; !ok {
			return x.fail("the test %s is not read", str(a.list[0]).String())
		}
		a.list = a.list[1:]
	}
	out := &list{}
	for _, item := range x.must(v) {
		value := item
		if byAttribute {
			value = x.path(item, name)
		}
		if x.spend(1) && check(x, value, a) == keep {
			out.items = append(out.items, item)
		}
	}
	return out
}
