package jinja

import "math"

// order compares numbers or texts. ok is false if Python does not order them.
func order(a, b any) (less, same, ok bool) {
	if x, _, isNumber := number(a); isNumber {
		y, _, isNumber := number(b)
		return x < y, x == y, isNumber
	}
	t, isText := a.(Text)
	u, other := b.(Text)
	if !isText || !other {
		return false, false, false
	}
	for i := range min(len(t), len(u)) {
		if c, d := t.at(i), u.at(i); c != d {
			return c < d, false, true
		}
	}
	return len(t) < len(u), len(t) == len(u), true
}

func (x *rendering) compare(op string, a, b any) bool {
	if !x.spend(1) {
		return false
	}
	switch op {
	case "==":
		return equal(a, b)
	case "!=":
		return !equal(a, b)
	case "in", "not in":
		return x.contains(b, a) == (op == "in")
	}
	less, same, ok := order(a, b)
	if !ok {
		x.fail("%s compares values of different kinds", op)
	}
	return less && op[0] == '<' || !less && !same && op[0] == '>' || same && len(op) == 2
}

func (x *rendering) contains(in, v any) bool {
	switch in := in.(type) {
	case Text:
		t, ok := v.(Text)
		if !ok {
			x.fail("in looks for a value that is no text in a text")
		}
		return in.find(t, 0) >= 0
	case *dict:
		_, ok := in.get(v)
		return ok
	case *list:
		for _, item := range in.items {
			if x.spend(1) && equal(item, v) {
				return true
			}
		}
		return false
	case undefined:
		return false
	}
	x.fail("in looks into a value that has no items")
	return false
}

func (x *rendering) calculate(op string, a, b any) any {
	if op == "~" {
		return x.made(append(append(Text(nil), str(a)...), str(b)...))
	}
	switch v := a.(type) {
	case Text:
		w, isText := b.(Text)
		n, isInt := b.(int)
		switch {
		case op == "+" && isText:
			return x.made(append(append(Text(nil), v...), w...))
		case op == "*" && isInt:
			return x.repeat(v, n)
		}
	case *list:
		if w, ok := b.(*list); ok && op == "+" && v.tuple == w.tuple {
			x.spend(len(v.items) + len(w.items))
			return &list{items: append(append([]any(nil), v.items...), w.items...), tuple: v.tuple}
		}
	case int:
		if w, ok := b.(Text); ok && op == "*" {
			return x.repeat(w, v)
		}
	}
	f, isInt, ok := number(a)
	g, isOther, other := number(b)
	if !ok || !other {
		return x.fail("%s takes values of these kinds: %s and %s", op, kind(a), kind(b))
	}
	if (op == "/" || op == "//" || op == "%") && g == 0 {
		return x.fail("a number is divided by 0")
	}
	var r float64
	switch op {
	case "+":
		r = f + g
	case "-":
		r = f - g
	case "*":
		r = f * g
	case "/":
		return f / g
	case "//":
		r = math.Floor(f / g)
	case "%":
		r = f - g*math.Floor(f/g)
	case "**":
		r = math.Pow(f, g)
	}
	if !isInt || !isOther || op == "**" && g < 0 {
		return r
	}
	if math.Abs(r) >= 1<<53 {
		return x.fail("an integer is larger than 2^53")
	}
	return int(r)
}

func (x *rendering) repeat(t Text, n int) any {
	if n <= 0 || len(t) == 0 {
		return Text{}
	}
	if n > mostSteps || !x.spend(len(t)*n/16) {
		return x.fail("a text is too long")
	}
	out := make(Text, 0, len(t)*n)
	for range n {
		out = append(out, t...)
	}
	return out
}

func kind(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case undefined:
		return "an undefined value (" + v.name + ")"
	case bool:
		return "a boolean"
	case int, float64:
		return "a number"
	case Text:
		return "a text"
	case *list:
		return "a list"
	case *dict:
		return "an object"
	}
	return "an object of the template"
}

// attribute returns v.name.
func (x *rendering) attribute(v any, name string) any {
	if m := method(v, name); m != nil {
		return m
	}
	switch v := v.(type) {
	case undefined:
		return x.fail("%s is undefined, and has no attribute %s", v.name, name)
	case *loop:
		if a, ok := v.attribute(name); ok {
			return a
		}
	case *namespace:
		if a, ok := v.get(own(name)); ok {
			return a
		}
	case *dict:
		if a, ok := v.get(own(name)); ok {
			return a
		}
	case *macro:
		if name == "name" {
			return own(v.name)
		}
	}
	return undefined{name}
}

// subscript returns v[key].
func (x *rendering) subscript(v, key any) any {
	switch v := v.(type) {
	case undefined:
		return x.fail("%s is undefined, and has no items", v.name)
	case *dict:
		if a, ok := v.get(key); ok {
			return a
		}
	case *list:
		if i, ok := index(key, len(v.items)); ok {
			return v.items[i]
		}
	case Text:
		if i, ok := index(key, len(v)); ok {
			return v[i : i+1 : i+1]
		}
	case *loop, *namespace:
		if name, ok := key.(Text); ok {
			return x.attribute(v, name.String())
		}
	}
	if name, ok := key.(Text); ok {
		if m := method(v, name.String()); m != nil {
			return m
		}
		return undefined{name.String()}
	}
	return undefined{"an item"}
}

// index returns the place that a subscript names.
func index(key any, n int) (int, bool) {
	i, ok := key.(int)
	if ok && i < 0 {
		i += n
	}
	return i, ok && i >= 0 && i < n
}

// slice returns v[from:to:step].
func (x *rendering) slice(v any, ends [3]any) any {
	n := 0
	switch v := v.(type) {
	case Text:
		n = len(v)
	case *list:
		n = len(v.items)
	case undefined:
		return x.fail("%s is undefined, and has no items", v.name)
	default:
		return x.fail("%s has no slices", kind(v))
	}
	step := 1
	if ends[2] != nil {
		var ok bool
		if step, ok = ends[2].(int); !ok || step == 0 {
			return x.fail("the step of a slice is no number but 0")
		}
	}
	low, high := 0, n
	if step < 0 {
		low, high = -1, n-1
	}
	bound := func(v any, otherwise int) int {
		i, ok := v.(int)
		if v == nil {
			return otherwise
		}
		if !ok {
			x.fail("an end of a slice is no number")
		}
		if i < 0 {
			i += n
		}
		return max(low, min(i, high))
	}
	from, to := bound(ends[0], low), bound(ends[1], high)
	if step < 0 {
		from, to = bound(ends[0], high), bound(ends[1], low)
	}
	var at []int
	for i := from; step > 0 && i < to || step < 0 && i > to; i += step {
		at = append(at, i)
	}
	x.spend(len(at))
	if t, ok := v.(Text); ok {
		out := make(Text, len(at))
		for k, i := range at {
			out[k] = t[i]
		}
		return out
	}
	l := v.(*list)
	out := &list{items: make([]any, len(at)), tuple: l.tuple}
	for k, i := range at {
		out.items[k] = l.items[i]
	}
	return out
}

func (x *rendering) call(v any, a args) any {
	if !x.spend(1) {
		return undefined{}
	}
	switch v := v.(type) {
	case function:
		return v(x, a)
	case *macro:
		return v.call(x, a)
	case undefined:
		if v.name == "strftime_now" {
			return x.failFor(ErrNoTime)
		}
		return x.fail("%s is undefined, and is called", v.name)
	}
	return x.fail("%s is called", kind(v))
}
