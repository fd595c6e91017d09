package jinja

import "unicode"

type testFunc func(x *rendering, v any, a args) bool

func compares(op string) testFunc {
	return func(x *rendering, v any, a args) bool {
		if len(a.list) != 1 {
			x.fail("a test takes one value")
			return false
		}
		return x.compare(op, v, a.list[0])
	}
}

func is[T any](_ *rendering, v any, _ args) bool {
	_, ok := v.(T)
	return ok
}

func (x *rendering) remainder(v, by any) any {
	r := x.calculate("%", v, by)
	if x.err != nil {
		return nil
	}
	return r
}

var tests = map[string]testFunc{
	"defined":   func(_ *rendering, v any, _ args) bool { _, ok := v.(undefined); return !ok },
	"undefined": is[undefined],
	"none":      func(_ *rendering, v any, _ args) bool { return v == nil },
	"string":    is[Text],
	"boolean":   is[bool],
	"integer":   is[int],
	"float":     is[float64],
	"number":    func(_ *rendering, v any, _ args) bool { _, _, ok := number(v); return ok },
	"mapping":   is[*dict],
	"true":      func(_ *rendering, v any, _ args) bool { return v == any(true) },
	"false":     func(_ *rendering, v any, _ args) bool { return v == any(false) },
	"iterable":  func(x *rendering, v any, _ args) bool { _, ok := x.items(v); return ok },
	"sequence":  func(x *rendering, v any, _ args) bool { _, ok := x.items(v); return ok },
	"callable": func(_ *rendering, v any, _ args) bool {
		switch v.(type) {
		case function, *macro:
			return true
		}
		return false
	},
	"equalto": compares("=="), "eq": compares("=="), "==": compares("=="),
	"ne": compares("!="), "!=": compares("!="),
	"lt": compares("<"), "lessthan": compares("<"), "<": compares("<"),
	"le": compares("<="), "<=": compares("<="),
	"gt": compares(">"), "greaterthan": compares(">"), ">": compares(">"),
	"ge": compares(">="), ">=": compares(">="),
	"in":   compares("in"),
	"odd":  func(x *rendering, v any, _ args) bool { return equal(x.remainder(v, 2), 1) },
	"even": func(x *rendering, v any, _ args) bool { return equal(x.remainder(v, 2), 0) },
	"divisibleby": func(x *rendering, v any, a args) bool {
		return equal(x.remainder(v, a.get(0, "num", nil)), 0)
	},
	"lower": func(_ *rendering, v any, _ args) bool { return cased(v, unicode.IsUpper) },
	"upper": func(_ *rendering, v any, _ args) bool { return cased(v, unicode.IsLower) },
}

// cased reports whether a text has letters, and none of the other case.
func cased(v any, other func(rune) bool) bool {
	letters := false
	t := str(v)
	for i := range t {
		if r := t.at(i); other(r) {
			return false
		} else if unicode.IsLetter(r) {
			letters = true
		}
	}
	return letters
}

// builtins are the names that every template has. The time is not among them: a run does not depend on it.
var builtins = map[string]any{
	"range": function(rangeOf),
	"dict": function(func(x *rendering, a args) any {
		d := newDict()
		for _, v := range a.list {
			if from, ok := v.(*dict); ok {
				for _, key := range from.keys {
					value, _ := from.get(key)
					d.set(key, value)
				}
			}
		}
		return d.with(a)
	}),
	"namespace": function(func(_ *rendering, a args) any {
		n := &namespace{*newDict()}
		n.with(a)
		return n
	}),
	"raise_exception": function(func(x *rendering, a args) any {
		return x.fail("%s", str(a.get(0, "message", own("without a reason"))).String())
	}),
}

// with adds the named arguments of a call.
func (d *dict) with(a args) *dict {
	for _, name := range a.names {
		d.set(own(name), a.named[name])
	}
	return d
}

func rangeOf(x *rendering, a args) any {
	from, to, step := 0, a.int(x, 0, "stop", 0), 1
	if len(a.list) > 1 {
		from, to = to, a.int(x, 1, "stop", 0)
	}
	if len(a.list) > 2 {
		step = a.int(x, 2, "step", 1)
	}
	out := &list{}
	if step == 0 {
		return x.fail("range has the step 0")
	}
	for i := from; (step > 0 && i < to || step < 0 && i > to) && x.spend(1); i += step {
		out.items = append(out.items, i)
	}
	return out
}
