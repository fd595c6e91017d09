package fields

import (
	"millrace"
	"millrace/sources"
	"millrace/sources/format/parts/valid"
	"millrace/sources/values"
)

// Reader takes the text and the other values out of decoded records. It is not safe for concurrent use.
type Reader struct {
	text   *Path // nil: the source needs no text
	others []Path
	needed int   // of the first others, the missing ones are named
	row    []any // of the last record
}

// NewReader returns a reader of a source's fields.
func NewReader(field sources.Field) (*Reader, error) {
	x := &Reader{needed: field.Needed, row: make([]any, len(field.Others))}
	if field.Text != "" {
		text, err := Parse(field.Text)
		if err != nil {
			return nil, err
		}
		x.text = &text
	}
	for _, name := range field.Others {
		p, err := Parse(name)
		if err != nil {
			return nil, err
		}
		x.others = append(x.others, p)
	}
	return x, nil
}

// Fill sets Text, Others and Err of a record to those of its fields. Record.Others is valid until the next call.
func (x *Reader) Fill(r *sources.Record, record values.Object) {
	for i, p := range x.others {
		v, ok := p.Of(record)
		if v == nil && i < x.needed {
			v = p.missing(record, ok)
		}
		x.row[i] = v
	}
	if len(x.row) > 0 {
		r.Others = x.row
	}
	if x.text == nil {
		return
	}
	v, ok := x.text.Of(record)
	switch v := v.(type) {
	case string:
		r.Text = []byte(v)
	case []byte:
		r.Text = v
		if v == nil {
			r.Text = []byte{}
		}
	case nil:
		r.Err = x.text.missing(record, ok)
	default:
		r.Err = millrace.Errorf(millrace.ErrBadSample, "field %q is %s, not a text", x.text.name, KindOf(v))
	}
	if r.Text != nil && !valid.UTF8(r.Text) {
		r.Text, r.Err = nil, millrace.Errorf(millrace.ErrBadSample, "field %q is not valid UTF-8", x.text.name)
	}
	if _, missing := r.Err.(*sources.MissingError); r.Err != nil && !missing {
		r.Others = nil
	}
}

// missing returns the error of a record without a value at the path. isThere says that the value is null.
func (p Path) missing(record values.Object, isThere bool) *sources.MissingError {
	how := sources.Absent
	if isThere {
		how = sources.Null
	}
	return sources.NewMissingError(p.name, how, p.Names(record))
}

// KindOf returns the words for the kind of a value, for people.
func KindOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case string:
		return "a text"
	case []byte:
		return "binary"
	case int, float64, values.Number:
		return "a number"
	case bool:
		return "a boolean"
	case []any:
		return "a list"
	case []uint32:
		return "a list of ids"
	case values.Object:
		return "an object"
	}
	return "a value of another kind"
}
