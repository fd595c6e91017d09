package regex

import (
	"fmt"
	"strconv"
	"unicode/utf8"
)

// Limits of expressions. Those of public tokenizers are far below them.
const (
	maxText   = 16 << 10
	maxDepth  = 32
	maxRepeat = 1000 // of a character
	maxUnroll = 16   // of a group
	maxSteps  = 4096
	// maxChoices bounds the time of a match. Public expressions have up to 6 choices in a row.
	maxChoices = 12
)

// parser reads an expression from left to right.
type parser struct {
	text   string
	pos    int
	depth  int
	steps  int // characters and groups so far, repeated groups as often as they are repeated
	syntax Syntax
	fold   bool // upper and lower case do not differ
}

// problem is a reason why an expression cannot be followed. parse returns it; within the parser it is a panic, because
// it ends the parser from any depth.
type problem struct{ error }

func parse(text string, syntax Syntax) (t *tree, err error) {
	if len(text) > maxText || !utf8.ValidString(text) {
		return nil, fmt.Errorf("it has more than %d bytes or is not UTF-8", maxText)
	}
	defer func() {
		if p, ok := recover().(problem); ok {
			err = p.error
		}
	}()
	p := &parser{text: text, syntax: syntax}
	t = p.choice()
	if p.pos < len(text) {
		p.refuse("a ) closes no group")
	}
	return t, nil
}

// refuse ends the parser.
func (p *parser) refuse(what string, args ...any) {
	panic(problem{fmt.Errorf("at byte %d: %s", p.pos, fmt.Sprintf(what, args...))})
}

// accept reads a text if it is next.
func (p *parser) accept(text string) bool {
	if len(p.text)-p.pos < len(text) || p.text[p.pos:p.pos+len(text)] != text {
		return false
	}
	p.pos += len(text)
	return true
}

// next reads a character.
func (p *parser) next() rune {
	if p.pos >= len(p.text) {
		p.refuse("the expression ends here, and more must follow")
	}
	r, size := utf8.DecodeRuneInString(p.text[p.pos:])
	p.pos += size
	return r
}

// peek returns the next byte, or 0 at the end.
func (p *parser) peek() byte {
	if p.pos < len(p.text) {
		return p.text[p.pos]
	}
	return 0
}

// choice reads alternatives up to a closing parenthesis or the end.
func (p *parser) choice() *tree {
	if p.depth++; p.depth > maxDepth {
		p.refuse("groups lie more than %d deep", maxDepth)
	}
	parts := []*tree{p.sequence()}
	for p.accept("|") {
		parts = append(parts, p.sequence())
	}
	p.depth--
	return simple(choice, parts)
}

// simple returns a tree of parts, without a tree around a single one. A choice of characters is a set.
func simple(k kind, parts []*tree) *tree {
	if len(parts) == 1 {
		return parts[0]
	}
	t := &tree{kind: k, parts: parts}
	if k != choice {
		return t
	}
	var all set
	for _, part := range parts {
		if part.kind != one {
			return t
		}
		all = all.union(part.chars)
	}
	return &tree{kind: one, chars: all}
}

func (p *parser) sequence() *tree {
	var parts []*tree
	for p.pos < len(p.text) && p.peek() != '|' && p.peek() != ')' {
		before := p.steps
		item := p.item()
		for p.pos < len(p.text) {
			repeated, ok := p.repeated(item, p.steps-before)
			if !ok {
				break
			}
			item = repeated
		}
		parts = append(parts, item)
	}
	if p.fold {
		p.refuseWideFolds(parts)
	}
	return simple(sequence, parts)
}

// refuseWideFolds refuses two letters beside each other that Oniguruma also finds as one, such as ss for ß.
func (p *parser) refuseWideFolds(parts []*tree) {
	if p.syntax != Oniguruma {
		return
	}
	for i := 1; i < len(parts); i++ {
		for _, pair := range []string{"ss", "ff", "fi", "fl", "st"} {
			if parts[i-1].beginnings().has(rune(pair[0])) && parts[i].beginnings().has(rune(pair[1])) {
				p.refuse("%q without case also matches other characters, which cannot be followed", pair)
			}
		}
	}
}

// item reads a character, a class, a group or an assertion.
func (p *parser) item() *tree {
	if p.steps++; p.steps > maxSteps {
		p.refuse("the expression has more than %d parts", maxSteps)
	}
	switch r := p.next(); r {
	case '(':
		return p.group()
	case '[':
		return p.one(p.class())
	case '.':
		return p.one(setOf(span{'\n', '\n'}).complement())
	case '$':
		if p.syntax == Oniguruma {
			return &tree{kind: endOfLine}
		}
		return &tree{kind: end}
	case '^', '*', '+', '?':
		p.refuse("%q cannot be followed here", r)
	case '{':
		if p.syntax == FancyRegex {
			p.refuse("%q cannot be followed here", r)
		}
		return p.literal(r)
	case '\\':
		return p.escaped()
	default:
		return p.literal(r)
	}
	return nil
}

func (p *parser) one(s set) *tree {
	if len(s) == 0 {
		p.refuse("a class has no characters")
	}
	return &tree{kind: one, chars: s}
}

func (p *parser) literal(r rune) *tree { return p.one(p.folded(setOf(span{r, r}))) }

// folded returns a set with the characters that differ in case only.
func (p *parser) folded(s set) set {
	if !p.fold {
		return s
	}
	if len(s) > 0 && s[len(s)-1].hi >= utf8.RuneSelf {
		p.refuse("characters beyond ASCII without case cannot be followed")
	}
	for r := 'a'; r <= 'z'; r++ {
		upper := r - 'a' + 'A'
		if s.has(r) || s.has(upper) {
			s = s.union(setOf(span{r, r}, span{upper, upper}))
		}
	}
	if s.has('s') {
		s = s.union(setOf(span{0x17f, 0x17f}))
	}
	if s.has('k') {
		s = s.union(setOf(span{0x212a, 0x212a}))
	}
	return s
}

// escaped reads what follows a backslash outside of a class.
func (p *parser) escaped() *tree {
	switch p.peek() {
	case 'z':
		p.pos++
		return &tree{kind: end}
	case 'A', 'Z', 'b', 'B', 'G', 'K', 'R', 'X':
		p.refuse(`\%c cannot be followed`, p.peek())
	}
	if s, ok := p.shorthand(false); ok {
		return p.one(s)
	}
	return p.literal(p.escape())
}

// group reads a group behind its parenthesis. Capturing groups are plain ones.
func (p *parser) group() *tree {
	fold := p.fold
	var t *tree
	switch {
	case p.accept("?i:"):
		p.fold = true
		t = p.choice()
	case p.accept("?-i:"):
		p.fold = false
		t = p.choice()
	case p.accept("?="):
		t = &tree{kind: ahead, parts: []*tree{p.choice()}}
	case p.accept("?!"):
		t = &tree{kind: ahead, parts: []*tree{p.choice()}, negative: true}
	case p.accept("?>"):
		t = &tree{kind: atomic, parts: []*tree{p.choice()}}
	case p.accept("?:"):
		t = p.choice()
	case p.peek() == '?':
		p.refuse("a group that begins with (?%c cannot be followed", p.text[min(p.pos+1, len(p.text)-1)])
	default:
		t = p.choice()
	}
	if !p.accept(")") {
		p.refuse("a group lacks its )")
	}
	p.fold = fold
	return t
}

// repeated reads a repetition of an item, if there is one. steps is the number of parts of the item.
func (p *parser) repeated(item *tree, steps int) (*tree, bool) {
	t := &tree{kind: repeat, parts: []*tree{item}, max: -1}
	bounds := false
	switch {
	case p.accept("*"):
	case p.accept("+"):
		t.min = 1
	case p.accept("?"):
		t.max = 1
	case p.peek() == '{':
		if bounds = p.bounds(t); !bounds {
			return nil, false
		}
	default:
		return nil, false
	}
	if item.kind == repeat || item.kind == ahead || item.kind == end || item.kind == endOfLine {
		p.refuse("a repetition of a repetition or an assertion cannot be followed")
	}
	switch {
	case p.accept("?"):
		if bounds && t.min == t.max {
			p.refuse("a lazy repetition of a fixed number cannot be followed")
		}
		t.mode = lazy
	case p.peek() == '+' && bounds && p.syntax == Oniguruma:
		p.refuse("a repetition of a repetition cannot be followed")
	case p.accept("+"):
		t.mode = possessive
	}
	if item.kind != one {
		p.steps += steps * max(t.max-1, 0)
		if t.max < 0 || t.max > maxUnroll || p.steps > maxSteps {
			p.refuse("a group that is repeated more than %d times cannot be followed", maxUnroll)
		}
	}
	return t, true
}

// bounds reads {n}, {n,} or {n,m}. For Oniguruma, anything else is text.
func (p *parser) bounds(t *tree) bool {
	start := p.pos
	p.pos++
	low, okLow := p.number()
	t.min, t.max = low, low
	okHigh := true
	if p.accept(",") {
		if t.max, okHigh = p.number(); !okHigh {
			t.max, okHigh = -1, true
		}
	}
	if !okLow || !p.accept("}") {
		p.pos = start
		p.refuse("a { that begins no repetition cannot be followed")
	}
	if t.min > maxRepeat || t.max > maxRepeat || t.max >= 0 && t.max < max(t.min, 1) {
		p.refuse("a repetition of %d to %d times cannot be followed", t.min, t.max)
	}
	return true
}

// number reads a decimal number.
func (p *parser) number() (n int, ok bool) {
	start := p.pos
	for p.peek() >= '0' && p.peek() <= '9' {
		p.pos++
	}
	n, err := strconv.Atoi(p.text[start:p.pos])
	return n, err == nil
}
