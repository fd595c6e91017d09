package jinja

// parser builds the operations of a template. After an error, every method returns at once.
type parser struct {
	tokens        []token
	at            int
	err           error
	nests, loops  int
	hasGeneration bool
	reads         map[string]bool // names of values
}

func (p *parser) peek() token { return p.tokens[min(p.at, len(p.tokens)-1)] }

// ahead returns the token n places ahead.
func (p *parser) ahead(n int) token { return p.tokens[min(p.at+n, len(p.tokens)-1)] }

func (p *parser) next() token {
	t := p.peek()
	p.at++
	return t
}

func (p *parser) refuse(format string, a ...any) {
	if p.err == nil {
		p.err = refuse(p.ahead(-min(p.at, 1)).line, format, a...)
	}
}

// take moves over a token of a kind, if it is next.
func (p *parser) take(kind string) bool {
	if p.err == nil && p.peek().kind == kind {
		p.at++
		return true
	}
	return false
}

// word moves over a name, if it is next.
func (p *parser) word(name string) bool {
	if t := p.peek(); p.err == nil && t.kind == "name" && t.text == name {
		p.at++
		return true
	}
	return false
}

// want moves over a token that must be next.
func (p *parser) want(kind string) token {
	t := p.next()
	if t.kind != kind && p.err == nil {
		p.refuse("%q instead of %q", t.text, kind)
	}
	return t
}

// nest begins a part inside another one. The caller ends it with unnest.
func (p *parser) nest() bool {
	if p.nests++; p.nests > mostNests {
		p.refuse("it is nested deeper than %d", mostNests)
	}
	return p.err == nil
}

func (p *parser) unnest() { p.nests-- }

// block reads data and tags up to a tag that it does not know, such as endif.
func (p *parser) block() stmt {
	var all []stmt
	defer p.unnest()
	if !p.nest() {
		return nil
	}
	for p.err == nil {
		switch t := p.peek(); t.kind {
		case "data":
			p.at++
			text := own(t.text)
			all = append(all, func(x *rendering, _ *scope, out *Text) { x.write(out, text) })
		case "{{":
			p.at++
			e := p.tuple()
			p.want("}}")
			all = append(all, func(x *rendering, s *scope, out *Text) { x.print(e(x, s), out) })
		case "{%":
			read := tagOf(p.ahead(1).text)
			if read == nil {
				if why, known := refused[p.ahead(1).text]; known {
					p.refuse("{%% %s %%} is not read: %s", p.ahead(1).text, why)
				}
				return sequence(all)
			}
			p.at += 2
			all = append(all, read(p))
		default:
			return sequence(all)
		}
	}
	return sequence(all)
}

func (x *rendering) print(v any, out *Text) {
	if x.err == nil {
		t := str(v)
		x.made(t)
		x.write(out, t)
	}
}

func sequence(all []stmt) stmt {
	return func(x *rendering, s *scope, out *Text) {
		for _, st := range all {
			if !x.spend(1) || x.jump != 0 {
				return
			}
			st(x, s, out)
		}
	}
}

// refused are the tags of Jinja that no chat template may use.
var refused = map[string]string{
	"include": "templates cannot read files", "import": "templates cannot read files",
	"from": "templates cannot read files", "extends": "templates cannot read files",
	"block": "templates cannot inherit",
	"do":    "transformers does not have it", "trans": "transformers does not have it",
	"autoescape": "chats have no HTML",
	"call":       "write the macro's text where it is used", "with": "write {% set %}",
}

// tagOf returns the reader of a tag, nil if there is none.
func tagOf(name string) func(*parser) stmt {
	switch name {
	case "if":
		return readIf
	case "for":
		return readFor
	case "set":
		return readSet
	case "macro":
		return readMacro
	case "generation":
		return readGeneration
	case "filter":
		return readFilter
	case "break":
		return readJump(breaking)
	case "continue":
		return readJump(continuing)
	}
	return nil
}

// tag reads {% name %} as the end of a block.
func (p *parser) endTag(names ...string) string {
	p.want("{%")
	t := p.want("name")
	for _, name := range names {
		if t.text == name {
			return name
		}
	}
	p.refuse("{%% %s %%} instead of {%% %s %%}", t.text, names[len(names)-1])
	return ""
}

func readIf(p *parser) stmt {
	type branch struct {
		when expr
		body stmt
	}
	var branches []branch
	var otherwise stmt
	for end := "elif"; end == "elif" && p.err == nil; {
		when := p.tuple()
		p.want("%}")
		branches = append(branches, branch{when, p.block()})
		if end = p.endTag("elif", "else", "endif"); end == "else" {
			p.want("%}")
			otherwise = p.block()
			p.endTag("endif")
		}
	}
	p.want("%}")
	return func(x *rendering, s *scope, out *Text) {
		for _, b := range branches {
			if truth(b.when(x, s)) && x.err == nil {
				b.body(x, s, out)
				return
			}
		}
		if otherwise != nil {
			otherwise(x, s, out)
		}
	}
}

// names reads the targets of for and set.
func (p *parser) names() (out []string) {
	shut := p.take("(")
	for p.err == nil {
		out = append(out, p.want("name").text)
		if !p.take(",") {
			break
		}
	}
	if shut {
		p.want(")")
	}
	return out
}

// assign gives a value to the names.
func (x *rendering) assign(s *scope, names []string, v any) {
	if len(names) == 1 {
		x.begin(v)
		s.vars[names[0]] = v
		return
	}
	items, ok := x.items(v)
	if !ok || len(items) != len(names) {
		x.fail("a value of %d parts is assigned to %d names", len(items), len(names))
		return
	}
	for i, name := range names {
		s.vars[name] = items[i]
	}
}

func readSet(p *parser) stmt {
	if p.ahead(1).kind == "." {
		space, name := p.want("name").text, ""
		p.want(".")
		name = p.want("name").text
		value := p.value()
		return func(x *rendering, s *scope, out *Text) {
			n, ok := x.variable(s, space).(*namespace)
			if v := value(x, s); ok {
				n.set(own(name), v)
			} else {
				x.fail("{%% set %s.%s %%}: %s is not a namespace", space, name, space)
			}
		}
	}
	names := p.names()
	value := p.value()
	return func(x *rendering, s *scope, out *Text) { x.assign(s, names, value(x, s)) }
}

// value reads the rest of {% set %}: an expression, or a block.
func (p *parser) value() expr {
	if p.take("=") {
		e := p.tuple()
		p.want("%}")
		return e
	}
	change := p.filters(func(x *rendering, s *scope) any { return s.vars["\x00body"] })
	p.want("%}")
	body := p.block()
	p.endTag("endset")
	p.want("%}")
	return func(x *rendering, s *scope) any {
		var text Text
		inner := s.inner()
		body(x, inner, &text)
		inner.vars["\x00body"] = text
		return change(x, inner)
	}
}

func readMacro(p *parser) stmt {
	name := p.want("name").text
	m := macro{name: name}
	p.want("(")
	for p.err == nil && !p.take(")") {
		m.names = append(m.names, p.want("name").text)
		var otherwise expr
		if p.take("=") {
			otherwise = p.expression()
		}
		m.defaults = append(m.defaults, otherwise)
		if p.peek().kind != ")" {
			p.want(",")
		}
	}
	p.want("%}")
	m.body = p.block()
	p.endTag("endmacro")
	if p.peek().kind == "name" {
		p.at++
	}
	p.want("%}")
	return func(_ *rendering, s *scope, _ *Text) {
		made := m
		made.home = s
		s.vars[name] = &made
	}
}

func readGeneration(p *parser) stmt {
	p.hasGeneration = true
	p.want("%}")
	body := p.block()
	p.endTag("endgeneration")
	p.want("%}")
	return func(x *rendering, s *scope, out *Text) {
		var text Text
		body(x, s.inner(), &text)
		for i := range text {
			text[i] |= generated
		}
		*out = append(*out, text...)
	}
}

func readFilter(p *parser) stmt {
	p.at-- // the name of the tag stands for the value
	p.tokens[p.at] = token{kind: "|", text: "|"}
	change := p.filters(func(x *rendering, s *scope) any { return s.vars["\x00body"] })
	p.want("%}")
	body := p.block()
	p.endTag("endfilter")
	p.want("%}")
	return func(x *rendering, s *scope, out *Text) {
		var text Text
		inner := s.inner()
		body(x, inner, &text)
		inner.vars["\x00body"] = text
		x.print(change(x, inner), out)
	}
}

func readJump(j jump) func(*parser) stmt {
	return func(p *parser) stmt {
		if p.loops == 0 {
			p.refuse("break or continue stands outside of a loop")
		}
		p.want("%}")
		return func(x *rendering, _ *scope, _ *Text) { x.jump = j }
	}
}
