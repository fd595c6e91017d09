package jinja

import "slices"

// get returns an argument by its place or its name, otherwise the default.
func (a args) get(i int, name string, otherwise any) any {
	if i >= 0 && i < len(a.list) {
		return a.list[i]
	}
	if v, ok := a.named[name]; ok {
		return v
	}
	return otherwise
}

// text returns an argument that is a text, nil if it is None or not given.
func (a args) text(x *rendering, i int, name string) Text {
	switch v := a.get(i, name, nil).(type) {
	case nil:
		return nil
	case Text:
		if v == nil {
			return Text{}
		}
		return v
	default:
		x.fail("argument %s is %s, not a text", name, kind(v))
		return nil
	}
}

// int returns an argument that is a number.
func (a args) int(x *rendering, i int, name string, otherwise int) int {
	n, ok := a.get(i, name, otherwise).(int)
	if !ok {
		x.fail("argument %s is no integer", name)
	}
	return n
}

// method returns a bound method, nil if the value has none of that name.
func method(v any, name string) any {
	switch v := v.(type) {
	case Text:
		if m := textMethod(name); m != nil {
			return function(func(x *rendering, a args) any { return m(x, v, a) })
		}
	case *dict:
		if m := dictMethod(name); m != nil {
			return function(func(x *rendering, a args) any { return m(x, v, a) })
		}
	case *list:
		if name == "index" || name == "count" {
			return function(func(x *rendering, a args) any { return v.search(x, name, a.get(0, "", nil)) })
		}
		if slices.Contains([]string{"append", "extend", "insert", "pop", "remove", "clear", "sort", "reverse"}, name) {
			return function(func(x *rendering, _ args) any {
				return x.fail("%s would change a list, which the sandbox forbids", name)
			})
		}
	}
	return nil
}

func (l *list) search(x *rendering, name string, v any) any {
	n := 0
	for i, item := range l.items {
		if equal(item, v) {
			if n++; name == "index" {
				return i
			}
		}
	}
	if name == "index" {
		return x.fail("index looks for a value that the list does not have")
	}
	return n
}

func dictMethod(name string) func(x *rendering, d *dict, a args) any {
	switch name {
	case "items":
		return func(_ *rendering, d *dict, _ args) any { return d.items() }
	case "keys":
		return func(_ *rendering, d *dict, _ args) any { return &list{items: d.keys} }
	case "values":
		return func(_ *rendering, d *dict, _ args) any {
			out := &list{}
			for _, key := range d.keys {
				v, _ := d.get(key)
				out.items = append(out.items, v)
			}
			return out
		}
	case "get":
		return func(_ *rendering, d *dict, a args) any {
			if v, ok := d.get(a.get(0, "key", nil)); ok {
				return v
			}
			return a.get(1, "default", nil)
		}
	case "copy":
		return func(_ *rendering, d *dict, _ args) any { return d }
	case "pop", "popitem", "update", "setdefault", "clear":
		return func(x *rendering, _ *dict, _ args) any {
			return x.fail("%s would change an object, which the sandbox forbids", name)
		}
	}
	return nil
}

// items returns the pairs of keys and values.
func (d *dict) items() *list {
	out := &list{}
	for _, key := range d.keys {
		v, _ := d.get(key)
		out.items = append(out.items, &list{items: []any{key, v}, tuple: true})
	}
	return out
}

func texts(parts []Text) any {
	out := &list{}
	for _, t := range parts {
		out.items = append(out.items, t)
	}
	return out
}

type textFunc func(x *rendering, t Text, a args) any

// textMethods are the methods of texts that only read their text and their arguments.
var textMethods = map[string]textFunc{
	"strip":  func(x *rendering, t Text, a args) any { return t.trimmed(a.text(x, 0, "chars"), true, true) },
	"lstrip": func(x *rendering, t Text, a args) any { return t.trimmed(a.text(x, 0, "chars"), true, false) },
	"rstrip": func(x *rendering, t Text, a args) any { return t.trimmed(a.text(x, 0, "chars"), false, true) },
	"upper":  func(x *rendering, t Text, _ args) any { return x.made(t.upper()) },
	"lower":  func(x *rendering, t Text, _ args) any { return x.made(t.lower()) },
	"title":  func(x *rendering, t Text, _ args) any { return x.made(t.title(true)) },
	"capitalize": func(x *rendering, t Text, _ args) any {
		return x.made(t.title(false))
	},
	"split": func(x *rendering, t Text, a args) any {
		sep := a.text(x, 0, "sep")
		if sep != nil && len(sep) == 0 {
			return x.fail("split has an empty separator")
		}
		x.spend(len(t))
		return texts(t.split(sep, a.int(x, 1, "maxsplit", -1)))
	},
	"rsplit": func(x *rendering, t Text, a args) any {
		sep := a.text(x, 0, "sep")
		if len(sep) == 0 {
			return x.fail("rsplit has no separator")
		}
		x.spend(len(t))
		return texts(t.splitLast(sep, a.int(x, 1, "maxsplit", -1)))
	},
	"splitlines": func(x *rendering, t Text, a args) any {
		x.spend(len(t))
		return texts(t.lines(truth(a.get(0, "keepends", false))))
	},
	"partition": func(x *rendering, t Text, a args) any {
		sep := a.text(x, 0, "sep")
		i := t.find(sep, 0)
		if len(sep) == 0 || i < 0 {
			return &list{items: []any{t, Text{}, Text{}}, tuple: true}
		}
		return &list{items: []any{t[:i], t[i : i+len(sep)], t[i+len(sep):]}, tuple: true}
	},
	"replace": func(x *rendering, t Text, a args) any {
		return x.replace(t, a.text(x, 0, "old"), a.text(x, 1, "new"), a.int(x, 2, "count", -1))
	},
	"startswith": func(x *rendering, t Text, a args) any {
		return x.anyEnd(a, func(e Text) bool { return t.hasAt(e, 0) })
	},
	"endswith": func(x *rendering, t Text, a args) any {
		return x.anyEnd(a, func(e Text) bool { return t.hasAt(e, len(t)-len(e)) })
	},
	"removeprefix": func(x *rendering, t Text, a args) any {
		if e := a.text(x, 0, "prefix"); t.hasAt(e, 0) {
			return t[len(e):]
		}
		return t
	},
	"removesuffix": func(x *rendering, t Text, a args) any {
		if e := a.text(x, 0, "suffix"); t.hasAt(e, len(t)-len(e)) {
			return t[:len(t)-len(e)]
		}
		return t
	},
	"find":  func(x *rendering, t Text, a args) any { return t.find(a.text(x, 0, "sub"), a.int(x, 1, "start", 0)) },
	"rfind": func(x *rendering, t Text, a args) any { return t.findLast(a.text(x, 0, "sub")) },
	"count": func(x *rendering, t Text, a args) any {
		sep := a.text(x, 0, "sub")
		if len(sep) == 0 {
			return len(t) + 1
		}
		return len(t.split(sep, -1)) - 1
	},
	"join": func(x *rendering, t Text, a args) any { return x.join(a.get(0, "iterable", nil), t) },
	"isdigit": func(_ *rendering, t Text, _ args) any {
		return len(t) > 0 && len(t.trimmed(own("0123456789"), true, false)) == 0
	},
}

func textMethod(name string) textFunc { return textMethods[name] }

// anyEnd applies a check to the text or the texts of the first argument.
func (x *rendering) anyEnd(a args, check func(Text) bool) any {
	if l, ok := a.get(0, "", nil).(*list); ok {
		return slices.ContainsFunc(l.items, func(v any) bool { t, ok := v.(Text); return ok && check(t) })
	}
	return check(a.text(x, 0, "text"))
}

func (x *rendering) replace(t, old, by Text, n int) any {
	if len(old) == 0 {
		return x.fail("replace has nothing to replace")
	}
	x.spend(len(t))
	return x.join(texts(t.split(old, n)), by)
}

// join joins the items of a value.
func (x *rendering) join(v any, sep Text) any {
	items, ok := x.items(v)
	if !ok {
		return x.fail("join takes %s", kind(v))
	}
	out := Text{}
	for i, item := range items {
		if i > 0 {
			out = append(out, sep...)
		}
		out = append(out, str(item)...)
		if !x.spend(1 + (len(sep)+len(str(item)))/16) {
			break
		}
	}
	return out
}
