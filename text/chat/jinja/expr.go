package jinja

import "strconv"

// tuple reads expressions with commas between them.
func (p *parser) tuple() expr { return p.list(p.expression) }

func (p *parser) list(read func() expr) expr {
	first := read()
	if p.peek().kind != "," {
		return first
	}
	all := []expr{first}
	for p.take(",") {
		if k := p.peek().kind; k == "%}" || k == "}}" || k == ")" {
			break
		}
		all = append(all, read())
	}
	return listOf(all, true)
}

func listOf(all []expr, tuple bool) expr {
	return func(x *rendering, s *scope) any {
		out := &list{tuple: tuple}
		for _, e := range all {
			out.items = append(out.items, e(x, s))
		}
		return out
	}
}

// expression reads `a if b else c`.
func (p *parser) expression() expr {
	defer p.unnest()
	if !p.nest() {
		return nil
	}
	e := p.or()
	for p.word("if") {
		when, yes := p.or(), e
		no := expr(func(*rendering, *scope) any { return undefined{} })
		if p.word("else") {
			no = p.expression()
		}
		e = func(x *rendering, s *scope) any {
			if truth(when(x, s)) {
				return yes(x, s)
			}
			return no(x, s)
		}
	}
	return e
}

func (p *parser) or() expr {
	e := p.and()
	for p.word("or") {
		a, b := e, p.and()
		e = func(x *rendering, s *scope) any {
			if v := a(x, s); truth(v) {
				return v
			}
			return b(x, s)
		}
	}
	return e
}

func (p *parser) and() expr {
	e := p.not()
	for p.word("and") {
		a, b := e, p.not()
		e = func(x *rendering, s *scope) any {
			if v := a(x, s); !truth(v) {
				return v
			}
			return b(x, s)
		}
	}
	return e
}

func (p *parser) not() expr {
	defer p.unnest()
	if !p.nest() {
		return nil
	}
	if p.word("not") {
		e := p.not()
		return func(x *rendering, s *scope) any { return !truth(e(x, s)) }
	}
	return p.compare()
}

func (p *parser) compare() expr {
	first := p.math(0)
	var ops []string
	var operands []expr
	for p.err == nil {
		op := p.peek().text
		switch k := p.peek().kind; {
		case k == "==" || k == "!=" || k == "<" || k == "<=" || k == ">" || k == ">=" || k == "name" && op == "in":
			p.at++
		case k == "name" && op == "not" && p.ahead(1).text == "in":
			p.at += 2
			op = "not in"
		default:
			if ops == nil {
				return first
			}
			return func(x *rendering, s *scope) any {
				a := first(x, s)
				for i, op := range ops {
					b := operands[i](x, s)
					if !x.compare(op, a, b) || x.err != nil {
						return false
					}
					a = b
				}
				return true
			}
		}
		ops, operands = append(ops, op), append(operands, p.math(0))
	}
	return first
}

// levels are the operators of arithmetic, the weakest first.
var levels = [][]string{{"+", "-"}, {"~"}, {"*", "/", "//", "%"}, {"**"}}

func (p *parser) math(level int) expr {
	if level == len(levels) {
		return p.unary(true)
	}
	e := p.math(level + 1)
	for p.err == nil {
		op := ""
		for _, o := range levels[level] {
			if p.take(o) {
				op = o
				break
			}
		}
		if op == "" {
			return e
		}
		a, b := e, p.math(level+1)
		e = func(x *rendering, s *scope) any {
			v := a(x, s)
			w := b(x, s)
			if !x.spend(1) {
				return undefined{}
			}
			return x.calculate(op, v, w)
		}
	}
	return e
}

func (p *parser) unary(filtered bool) (e expr) {
	defer p.unnest()
	if !p.nest() {
		return nil
	}
	if sign := p.peek().kind; sign == "-" || sign == "+" {
		p.at++
		inner := p.unary(false)
		e = func(x *rendering, s *scope) any {
			v := inner(x, s)
			if sign == "-" {
				return x.calculate("-", 0, v)
			}
			return x.calculate("+", 0, v)
		}
	} else {
		e = p.postfix(p.primary())
	}
	if filtered {
		e = p.filters(e)
	}
	return e
}

func constant(v any) expr { return func(*rendering, *scope) any { return v } }

func (p *parser) primary() expr {
	t := p.next()
	switch t.kind {
	case "name":
		switch t.text {
		case "true", "True":
			return constant(true)
		case "false", "False":
			return constant(false)
		case "none", "None":
			return constant(nil)
		}
		p.reads[t.text] = true
		return func(x *rendering, s *scope) any { return x.variable(s, t.text) }
	case "string":
		text := t.text
		for p.peek().kind == "string" {
			text += p.next().text
		}
		return constant(own(text))
	case "int":
		n, err := strconv.Atoi(t.text)
		if err != nil {
			p.refuse("the number %s is too large", t.text)
		}
		return constant(n)
	case "float":
		f, err := strconv.ParseFloat(t.text, 64)
		if err != nil {
			p.refuse("the number %s is too large", t.text)
		}
		return constant(f)
	case "(":
		if p.take(")") {
			return listOf(nil, true)
		}
		e := p.tuple()
		p.want(")")
		return e
	case "[":
		var all []expr
		for p.err == nil && !p.take("]") {
			all = append(all, p.expression())
			if p.peek().kind != "]" {
				p.want(",")
			}
		}
		return listOf(all, false)
	case "{":
		return p.dict()
	}
	p.refuse("unexpected %q", t.text)
	return nil
}

func (p *parser) dict() expr {
	var keys, values []expr
	for p.err == nil && !p.take("}") {
		keys = append(keys, p.expression())
		p.want(":")
		values = append(values, p.expression())
		if p.peek().kind != "}" {
			p.want(",")
		}
	}
	return func(x *rendering, s *scope) any {
		d := newDict()
		for i := range keys {
			if key := keys[i](x, s); !d.set(key, values[i](x, s)) {
				return x.fail("a key of an object is no text")
			}
		}
		return d
	}
}

// variable returns the value of a name.
func (x *rendering) variable(s *scope, name string) any {
	x.spend(1)
	for ; s != nil; s = s.up {
		if v, ok := s.vars[name]; ok {
			return v
		}
	}
	return undefined{name}
}

// postfix reads attributes, subscripts and calls.
func (p *parser) postfix(e expr) expr {
	for p.err == nil {
		of := e
		switch {
		case p.take("."):
			t := p.next()
			if t.kind == "int" {
				n, _ := strconv.Atoi(t.text)
				e = func(x *rendering, s *scope) any { return x.subscript(of(x, s), n) }
				continue
			}
			if t.kind != "name" {
				p.refuse("%q is no attribute", t.text)
			}
			e = func(x *rendering, s *scope) any { return x.attribute(of(x, s), t.text) }
		case p.take("["):
			e = p.subscript(of)
		case p.take("("):
			given := p.arguments()
			e = func(x *rendering, s *scope) any { return x.call(of(x, s), given(x, s)) }
		default:
			return e
		}
	}
	return e
}

// subscript reads the inside of brackets.
func (p *parser) subscript(of expr) expr {
	var bounds [3]expr
	n := 0
	for p.err == nil && !p.take("]") {
		if p.take(":") {
			if n++; n > 2 {
				p.refuse("a slice has too many parts")
			}
			continue
		}
		bounds[min(n, 2)] = p.expression()
	}
	if n == 0 {
		key := bounds[0]
		if key == nil {
			p.refuse("a subscript is empty")
		}
		return func(x *rendering, s *scope) any { return x.subscript(of(x, s), key(x, s)) }
	}
	return func(x *rendering, s *scope) any {
		v := of(x, s)
		var ends [3]any
		for i, b := range bounds {
			if b != nil {
				ends[i] = b(x, s)
			}
		}
		return x.slice(v, ends)
	}
}

// arguments reads the arguments of a call, behind its opening parenthesis.
func (p *parser) arguments() func(*rendering, *scope) args {
	var all []func(*rendering, *scope, *args)
	for p.err == nil && !p.take(")") {
		all = append(all, p.argument())
		if p.peek().kind != ")" {
			p.want(",")
		}
	}
	return func(x *rendering, s *scope) args {
		a := args{named: map[string]any{}}
		for _, add := range all {
			add(x, s, &a)
		}
		return a
	}
}

// argument reads one argument: a value, a named one, *values or **names.
func (p *parser) argument() func(*rendering, *scope, *args) {
	switch {
	case p.take("**"):
		e := p.expression()
		return func(x *rendering, s *scope, a *args) {
			d, ok := e(x, s).(*dict)
			if !ok {
				x.fail("** stands before a value that is no object")
				return
			}
			for _, key := range d.keys {
				v, _ := d.get(key)
				a.name(str(key).String(), v)
			}
		}
	case p.take("*"):
		e := p.expression()
		return func(x *rendering, s *scope, a *args) { a.list = append(a.list, x.must(e(x, s))...) }
	case p.peek().kind == "name" && p.ahead(1).kind == "=":
		name := p.next().text
		p.at++
		e := p.expression()
		return func(x *rendering, s *scope, a *args) { a.name(name, e(x, s)) }
	}
	e := p.expression()
	return func(x *rendering, s *scope, a *args) { a.list = append(a.list, e(x, s)) }
}

// name adds a named argument.
func (a *args) name(name string, v any) {
	if _, has := a.named[name]; !has {
		a.names = append(a.names, name)
	}
	a.named[name] = v
}

// filters reads filters, tests, and calls of their results.
func (p *parser) filters(e expr) expr {
	for p.err == nil {
		switch {
		case p.take("|"):
			e = p.filter(e)
		case p.word("is"):
			e = p.test(e)
		case p.take("("):
			of, given := e, p.arguments()
			e = func(x *rendering, s *scope) any { return x.call(of(x, s), given(x, s)) }
		default:
			return e
		}
	}
	return e
}

func (p *parser) filter(of expr) expr {
	name := p.want("name").text
	apply := filterOf(name)
	if apply == nil {
		p.refuse("the filter %s is not read", name)
	}
	given := func(*rendering, *scope) args { return args{} }
	if p.take("(") {
		given = p.arguments()
	}
	return func(x *rendering, s *scope) any {
		v, a := of(x, s), given(x, s)
		if !x.spend(1) {
			return undefined{}
		}
		return apply(x, v, a)
	}
}

func (p *parser) test(of expr) expr {
	not := p.word("not")
	name := p.want("name").text
	check, ok := tests[name]
	if !ok {
		p.refuse("the test %s is not read", name)
	}
	given := func(*rendering, *scope) args { return args{} }
	switch t := p.peek(); {
	case p.take("("):
		given = p.arguments()
	case t.kind == "string" || t.kind == "int" || t.kind == "float" || t.kind == "[" || t.kind == "{" ||
		t.kind == "name" && t.text != "else" && t.text != "or" && t.text != "and" && t.text != "is" && t.text != "if":
		one := p.postfix(p.primary())
		given = func(x *rendering, s *scope) args { return args{list: []any{one(x, s)}} }
	}
	return func(x *rendering, s *scope) any {
		v, a := of(x, s), given(x, s)
		if x.err != nil {
			return false
		}
		return check(x, v, a) != not
	}
}
