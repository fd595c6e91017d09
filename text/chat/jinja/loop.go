package jinja

// macro is a part of a template with arguments.
type macro struct {
	name     string
	names    []string
	defaults []expr // nil: the argument has none
	body     stmt
	home     *scope
}

// call renders the macro.
func (m *macro) call(x *rendering, a args) any {
	defer x.leave()
	if !x.enter() {
		return undefined{}
	}
	s := m.home.inner()
	if len(a.list) > len(m.names) {
		return x.fail("macro %s takes %d arguments, not %d", m.name, len(m.names), len(a.list))
	}
	taken := 0
	for i, name := range m.names {
		v, isNamed := a.named[name]
		switch {
		case i < len(a.list):
			s.vars[name] = a.list[i]
		case isNamed:
			s.vars[name] = v
			taken++
		case m.defaults[i] != nil:
			s.vars[name] = m.defaults[i](x, s)
		default:
			s.vars[name] = undefined{name}
		}
	}
	if taken != len(a.named) {
		return x.fail("macro %s has no argument of that name", m.name)
	}
	var out Text
	m.body(x, s, &out)
	return x.made(out)
}

// loop is the variable `loop`.
type loop struct {
	items   []any
	at      int
	changed *list // the last arguments of loop.changed
}

func (l *loop) attribute(name string) (any, bool) {
	n := len(l.items)
	switch name {
	case "index":
		return l.at + 1, true
	case "index0":
		return l.at, true
	case "revindex":
		return n - l.at, true
	case "revindex0":
		return n - l.at - 1, true
	case "first":
		return l.at == 0, true
	case "last":
		return l.at == n-1, true
	case "length":
		return n, true
	case "depth":
		return 1, true
	case "depth0":
		return 0, true
	case "previtem":
		if l.at == 0 {
			return undefined{"previtem"}, true
		}
		return l.items[l.at-1], true
	case "nextitem":
		if l.at == n-1 {
			return undefined{"nextitem"}, true
		}
		return l.items[l.at+1], true
	case "cycle":
		return function(func(x *rendering, a args) any {
			if len(a.list) == 0 {
				return x.fail("loop.cycle has no arguments")
			}
			return a.list[l.at%len(a.list)]
		}), true
	case "changed":
		return function(func(_ *rendering, a args) any {
			is := &list{items: a.list}
			was := l.changed
			l.changed = is
			return was == nil || !equal(was, is)
		}), true
	}
	return nil, false
}

func readFor(p *parser) stmt {
	names := p.names()
	if !p.word("in") {
		p.refuse("for has no in")
	}
	over := p.list(p.or)
	var keep expr
	if p.word("if") {
		keep = p.expression()
	}
	if p.word("recursive") {
		p.refuse("recursive loops are not read")
	}
	p.want("%}")
	p.loops++
	body := p.block()
	p.loops--
	var otherwise stmt
	if p.endTag("else", "endfor") == "else" {
		p.want("%}")
		otherwise = p.block()
		p.endTag("endfor")
	}
	p.want("%}")
	return func(x *rendering, s *scope, out *Text) {
		items, ok := x.items(over(x, s))
		if !ok {
			x.fail("for runs over a value that has no items")
			return
		}
		if keep != nil {
			items = x.kept(s, names, items, keep)
		}
		l, turn := &loop{items: items}, x.turn
		x.loops++
		defer func() { x.loops-- }()
		for l.at = 0; l.at < len(items) && x.spend(1); l.at++ {
			inner := s.inner()
			inner.vars["loop"] = l
			x.assign(inner, names, items[l.at])
			body(x, inner, out)
			x.turn = turn
			was := x.jump
			x.jump = 0
			if was == breaking {
				break
			}
		}
		if len(items) == 0 && otherwise != nil {
			otherwise(x, s.inner(), out)
		}
	}
}

// begin begins the turn of a counted item that a loop runs over, or that a loop over places gives a name. It ends with
// this turn of the loop.
func (x *rendering) begin(v any) {
	if d, ok := v.(*dict); ok && d.turn != 0 && x.loops > 0 && x.turn == 0 {
		x.turn = d.turn
	}
}

// kept returns the items for which the condition of a loop holds.
func (x *rendering) kept(s *scope, names []string, items []any, keep expr) (out []any) {
	for _, item := range items {
		inner := s.inner()
		x.assign(inner, names, item)
		if truth(keep(x, inner)) && x.spend(1) {
			out = append(out, item)
		}
	}
	return out
}

// items returns the items of a loop over the value.
func (x *rendering) items(v any) (out []any, ok bool) {
	switch v := v.(type) {
	case undefined:
		return nil, true
	case *list:
		return v.items, true
	case *dict:
		return v.keys, true
	case Text:
		x.spend(len(v))
		for i := range v {
			out = append(out, v[i:i+1:i+1])
		}
		return out, true
	}
	return nil, false
}
