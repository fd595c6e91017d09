package jsonl

import (
	"strconv"
	"strings"

	"millrace/sources"
)

// fields takes the text and the values of other fields out of JSON lines. It searches the line once for each field,
// which is far cheaper than tokenising. It is not safe for concurrent use.
type fields struct {
	text   *extractor
	others []*extractor
	row    []any // of the last line
}

func newFields(f sources.Field) (*fields, error) {
	text, err := newExtractor(f.Text)
	if err != nil {
		return nil, err
	}
	out := &fields{text: text, row: make([]any, len(f.Others))}
	for _, name := range f.Others {
		x, err := newExtractor(name)
		if err != nil {
			return nil, err
		}
		out.others = append(out.others, x)
	}
	return out, nil
}

// setContent sets the content of a record to that of a line. It is valid until the next line.
func (f *fields) setContent(r *sources.Record, line []byte) {
	if r.Text, r.Err = f.text.text(line); r.Err != nil || len(f.others) == 0 {
		return
	}
	for i, x := range f.others {
		v, err := x.scalar(line)
		if err != nil {
			r.Text, r.Err = nil, err
			return
		}
		f.row[i] = v
	}
	r.Others = f.row
}

// scalar returns the field's value in memory of its own. It returns nil if there is no such field, or null. A number
// without point and exponent is an int if it fits.
func (x *extractor) scalar(line []byte) (any, error) {
	if err := x.find(line); err != nil {
		return nil, err
	}
	switch x.state {
	case missing, notObject:
		return nil, nil
	case isText:
		text, err := x.plain()
		return string(text), err
	}
	switch c := x.raw[0]; c {
	case 'n':
		return nil, nil
	case 't', 'f':
		return c == 't', nil
	case '{', '[':
		return nil, bad("field %q is no string, number or boolean, so no filter can read it",
			strings.Join(x.path, "."))
	}
	text := string(x.raw)
	if n, err := strconv.Atoi(text); err == nil {
		return n, nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, bad("field %q is no number that 64 bits hold: %s", strings.Join(x.path, "."), text)
	}
	return n, nil
}
