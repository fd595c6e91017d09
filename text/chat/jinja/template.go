package jinja

import (
	"fmt"

	"millrace"
)

// The limits of a rendering. A real template takes some hundred steps a message.
const (
	mostSteps = 3_000_000 // operations, and sixteenths of the characters that they make
	mostDepth = 100       // of calls, and of values inside values
	mostNests = 200       // of expressions and tags inside each other
)

// ErrEndless is the error of a template that takes too long.
var ErrEndless = fmt.Errorf("it takes more than %d steps", mostSteps)

// Template is a parsed chat template. It is immutable and safe for concurrent use.
type Template struct {
	body stmt
	// HasGeneration reports whether the template has {% generation %} blocks.
	HasGeneration bool
	reads         map[string]bool // names of values
}

type (
	expr func(x *rendering, s *scope) any
	stmt func(x *rendering, s *scope, out *Text)
)

// rendering is the state of one rendering. After an error, every operation returns at once.
type rendering struct {
	err   error
	steps int
	depth int
	jump  jump   // of the loop that is being left
	turn  uint64 // the bits of the turn that is being written, 0 if there is none
	loops int    // that are running, inside each other
}

type jump int

const (
	breaking jump = iota + 1
	continuing
)

// scope has the variables of a block. The variables of the blocks around it are seen through it.
type scope struct {
	vars map[string]any
	up   *scope
}

func (s *scope) inner() *scope { return &scope{vars: map[string]any{}, up: s} }

// fail notes the first error.
func (x *rendering) fail(format string, a ...any) any {
	if x.err == nil {
		x.err = millrace.Errorf(millrace.ErrBadSample, "the chat template failed: "+format, a...)
	}
	return undefined{}
}

// spend counts steps and reports whether the rendering may continue.
func (x *rendering) spend(n int) bool {
	if x.steps += n; x.steps > mostSteps && x.err == nil {
		x.failFor(ErrEndless)
	}
	return x.err == nil
}

// failFor notes the first error, which wraps a cause.
func (x *rendering) failFor(cause error) any {
	if x.err == nil {
		x.err = millrace.Errorf(millrace.ErrBadSample, "the chat template failed: %w", cause)
	}
	return undefined{}
}

// made counts the characters of a new text.
func (x *rendering) made(t Text) any {
	x.spend(len(t) / 16)
	return t
}

// enter begins a call and reports whether it may continue. The caller ends it with leave.
func (x *rendering) enter() bool {
	if x.depth++; x.depth > mostDepth {
		x.fail("its calls are nested deeper than %d", mostDepth)
	}
	return x.err == nil
}

func (x *rendering) leave() { x.depth-- }

// Parse reads a template. An error wraps millrace.ErrInvalid and names the line and the part that is not understood.
func Parse(source string) (*Template, error) {
	tokens, err := lex(source)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: append(tokens, token{kind: "end", line: 1}), reads: map[string]bool{}}
	t := &Template{}
	t.body = p.block()
	if p.err == nil && p.peek().kind != "end" {
		p.refuse("unexpected tag {%% %s %%}", p.tokens[p.at+1].text)
	}
	if p.err != nil {
		return nil, p.err
	}
	t.HasGeneration, t.reads = p.hasGeneration, p.reads
	return t, nil
}

// Reads reports whether the template reads a value of this name anywhere.
func (t *Template) Reads(name string) bool { return t.reads[name] }

// Span is a run of characters.
type Span struct{ From, To int }

// Rendered is the output of a template.
type Rendered struct {
	Runes []rune
	// Origin has the value of each character: 0 is the template's own text, otherwise the number of a Value or, for the
	// items of a list, of the item.
	Origin []uint32
	// Turn has for each character the origin of the counted item for which a loop of the template wrote it, 0 if no
	// such loop did.
	Turn []uint32
	// Generated are the characters of {% generation %} blocks.
	Generated []Span
}

// Value is a named value of a rendering: nil, bool, int, float64, string, []any or Object. A time.Time
// is a function of a format, as strftime_now: it gives this moment. Origin is
// the origin of its texts. If Count is set, each item of the list has an origin of its own: Origin, Origin+1 and so on.
type Value struct {
	Name   string
	Value  any
	Origin uint32
	Count  bool
}

// count gives each item of a list an origin of its own. Roles that are words are the template's own text, because
// templates make control tokens of them: `'<|' + message.role + '|>'`.
func (l *list) count(items []any, origin uint32) (err error) {
	if len(items) > mostOrigin-int(origin) {
		return millrace.Errorf(millrace.ErrBadSample, "the conversation has more than %d messages", mostOrigin-origin)
	}
	for i := range items {
		at := uint64(origin + uint32(i))
		if l.items[i], err = import_(items[i], at<<originAt); err != nil {
			return err
		}
		if d, ok := l.items[i].(*dict); ok {
			d.turn = at << turnAt
			if role, ok := d.values["role"].(Text); ok && role.isWord() {
				d.values["role"] = own(role.String())
			}
		}
	}
	return nil
}

// Render renders the template. An error wraps millrace.ErrBadSample.
func (t *Template) Render(values []Value) (Rendered, error) {
	vars := map[string]any{}
	for _, v := range values {
		value, err := import_(v.Value, uint64(v.Origin)<<originAt)
		if items, ok := v.Value.([]any); ok && v.Count && err == nil {
			err = value.(*list).count(items, v.Origin)
		}
		if err != nil {
			return Rendered{}, err
		}
		vars[v.Name] = value
	}
	x, out := &rendering{}, Text(nil)
	globals := &scope{vars: builtins}
	t.body(x, &scope{vars: vars, up: globals}, &out)
	if x.err != nil {
		return Rendered{}, x.err
	}
	r := Rendered{Runes: make([]rune, len(out)), Origin: make([]uint32, len(out)), Turn: make([]uint32, len(out))}
	for i := range out {
		r.Runes[i], r.Origin[i], r.Turn[i] = out.at(i), uint32(out[i]>>originAt), uint32(out[i]&turnBits>>turnAt)
		switch last := len(r.Generated) - 1; {
		case out[i]&generated == 0:
		case last >= 0 && r.Generated[last].To == i:
			r.Generated[last].To++
		default:
			r.Generated = append(r.Generated, Span{i, i + 1})
		}
	}
	return r, nil
}
