package jsonl

import (
	"errors"

	"millrace/sources"
	"millrace/sources/values"
)

// parser takes the text and the values of other fields out of JSON lines. It searches the line once for each field,
// which is far cheaper than tokenising. It is not safe for concurrent use.
type parser struct {
	text   *extractor
	others []*extractor
	needed int   // of the first others, the missing ones are named
	row    []any // of the last line
}

func newParser(f sources.Field) (*parser, error) {
	text, err := newExtractor(f.Text)
	if err != nil {
		return nil, err
	}
	out := &parser{text: text, needed: f.Needed, row: make([]any, len(f.Others))}
	for _, name := range f.Others {
		x, err := newExtractor(name)
		if err != nil {
			return nil, err
		}
		out.others = append(out.others, x)
	}
	return out, nil
}

// SetContent implements rows.Parser: it sets the content of a record to that of a line. It is valid until the next
// line.
func (p *parser) SetContent(r *sources.Record, line []byte) {
	var missing *sources.MissingError
	switch {
	case p.text.name == "":
		r.Err = p.text.find(line)
	default:
		r.Text, r.Err = p.text.text(line)
	}
	if len(p.others) == 0 || r.Err != nil && !errors.As(r.Err, &missing) {
		return
	}
	for i, x := range p.others {
		v, err := x.any(line)
		if err != nil {
			r.Text, r.Err = nil, err
			return
		}
		if v == nil && i < p.needed {
			v = x.missing(line)
		}
		p.row[i] = v
	}
	r.Others = p.row
}

// any returns the field's value in memory of its own. It returns nil if there is no such field, or null.
func (x *extractor) any(line []byte) (any, error) {
	if err := x.find(line); err != nil {
		return nil, err
	}
	switch x.state {
	case nothing:
		return nil, nil
	case isText:
		text, err := x.plain()
		return string(text), err
	}
	return x.builder.build(x.raw, x.name)
}

// mostValues is the largest number of values inside one field of a record. It bounds the memory of a record whose line
// has many short ones.
const mostValues = 4 << 20

// builder makes Go values of a field's JSON, which was validated before. It is not safe for concurrent use.
type builder struct {
	jsonScanner
	field string // for errors
	left  int    // values until mostValues
}

// build returns the value of raw JSON in memory of its own.
func (b *builder) build(raw []byte, field string) (any, error) {
	b.line, b.at, b.field, b.left = raw, 0, field, mostValues
	if cap(b.buf) < len(raw)+blockReach {
		b.buf = make([]byte, len(raw)+len(raw)/4+blockReach)
	}
	v, err := b.value()
	b.line = nil
	return v, err
}

func (b *builder) value() (any, error) {
	if b.left--; b.left < 0 {
		return nil, bad("field %q has more than %d values", b.field, mostValues)
	}
	b.space()
	switch c := b.peek(); c {
	case '{':
		return b.object()
	case '[':
		return b.list()
	case '"':
		return b.text()
	case 'n':
		return nil, b.literal("null")
	case 't':
		return true, b.literal("true")
	case 'f':
		return false, b.literal("false")
	}
	return b.numeral()
}

func (b *builder) text() (string, error) {
	if err := b.keepContent(); err != nil {
		return "", err
	}
	if b.lone {
		return "", bad("lone surrogate in field %q", b.field)
	}
	return string(b.content), nil
}

func (b *builder) numeral() (any, error) {
	from := b.at
	if err := b.number(); err != nil {
		return nil, err
	}
	n, err := values.Numeral(string(b.line[from:b.at]))
	if err != nil {
		return nil, bad("field %q is %v", b.field, err)
	}
	return n, nil
}

func (b *builder) list() (any, error) {
	out := []any{}
	for b.more(']') {
		v, err := b.value()
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

func (b *builder) object() (any, error) {
	var out values.Object
	for b.more('}') {
		b.space()
		key, err := b.text()
		if err != nil {
			return nil, err
		}
		b.space()
		b.at++ // the colon
		v, err := b.value()
		if err != nil {
			return nil, err
		}
		out.Add(key, v)
	}
	return out.Unique(), nil
}

// more moves behind the opening bracket or the comma, and reports whether an element follows. It moves behind the
// closing bracket.
func (b *builder) more(end byte) bool {
	b.space()
	if b.peek() == end {
		b.at++
		return false
	}
	b.at++
	if b.space(); b.peek() == end { // of an empty list or object
		b.at++
		return false
	}
	return true
}
