// Package example takes the text and the fields out of records that are one text or one tf.train.Example, for formats
// whose records have no fields of their own.
//
// The message is decoded without generated code: Example{1: Features},
// Features{1: map<string, Feature>}, Feature{1: BytesList | 2: FloatList | 3: Int64List}. Of a list with one value,
// that value is the field's; a feature without a kind or a value is null.
package example

import (
	"math"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/parts/fields"
	"millrace/sources/format/parts/valid"
	"millrace/sources/values"
)

// Content is the content of records: the value of the key `record`.
type Content string

// The contents.
const (
	Text    Content = "text"
	Example Content = "example"
)

// textField is the only field of a record that is a text.
const textField = "text"

// Reader takes the fields out of records. It is not safe for concurrent use.
type Reader struct {
	content Content
	plain   bool // only the text is wanted
	names   map[string]bool
	reader  *fields.Reader
}

// NewReader returns a reader of a source's fields.
func NewReader(content Content, field sources.Field) (*Reader, error) {
	x := &Reader{content: content, names: map[string]bool{}}
	x.plain = content == Text && field.Text == textField && len(field.Others) == 0
	var err error
	if x.reader, err = fields.NewReader(field); err != nil {
		return nil, err
	}
	for _, name := range append([]string{field.Text}, field.Others...) {
		first, _, _ := strings.Cut(name, ".")
		x.names[name], x.names[first] = true, true
	}
	return x, nil
}

// Fill sets Text, Others and Err of a record to those of its bytes. Text may share the memory of data.
func (x *Reader) Fill(r *sources.Record, data []byte) {
	switch {
	case x.plain && !valid.UTF8(data):
		r.Err = millrace.Errorf(millrace.ErrBadSample, "the record is no text: it is not valid UTF-8; "+
			"a record with fields needs `record: example`")
	case x.plain:
		r.Text = data[:len(data):len(data)]
		if data == nil {
			r.Text = []byte{}
		}
	case x.content == Text:
		x.reader.Fill(r, values.Object{Keys: []string{textField}, Values: []any{string(data)}})
	default:
		features, err := x.decode(data)
		if err != nil {
			r.Err = err
			return
		}
		x.reader.Fill(r, features)
	}
}

func bad(what string) error {
	return millrace.Errorf(millrace.ErrBadSample, "the record is no tf.train.Example: %s", what)
}

// decode returns the features. Features that the caller did not ask for have the value nil.
func (x *Reader) decode(data []byte) (values.Object, error) {
	var out values.Object
	err := each(data, func(n protowire.Number, features []byte) error {
		if n != 1 {
			return nil
		}
		return each(features, func(n protowire.Number, entry []byte) error {
			if n != 1 {
				return nil
			}
			return x.entry(&out, entry)
		})
	})
	return out.Unique(), err
}

// entry decodes one entry of the map. The last of equal keys counts.
func (x *Reader) entry(out *values.Object, entry []byte) error {
	key, feature := "", []byte(nil)
	err := each(entry, func(n protowire.Number, b []byte) error {
		switch n {
		case 1:
			key = string(b)
		case 2:
			feature = b
		}
		return nil
	})
	if err != nil {
		return err
	}
	if !x.names[key] {
		out.Add(key, nil)
		return nil
	}
	var list []any
	err = each(feature, func(n protowire.Number, b []byte) (err error) {
		switch n {
		case 1:
			list, err = texts(b)
		case 2:
			list, err = numbers(b, protowire.Fixed32Type)
		case 3:
			list, err = numbers(b, protowire.VarintType)
		}
		return err
	})
	switch len(list) {
	case 0:
		out.Add(key, nil)
	case 1:
		out.Add(key, list[0])
	default:
		out.Add(key, list)
	}
	return err
}

// each passes the fields of a message that are bytes to fn. Others are passed over.
func each(b []byte, fn func(n protowire.Number, content []byte) error) error {
	for len(b) > 0 {
		n, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return bad("a field has no number")
		}
		b = b[size:]
		if kind != protowire.BytesType {
			if size = protowire.ConsumeFieldValue(n, kind, b); size < 0 {
				return bad("a field ends early")
			}
			b = b[size:]
			continue
		}
		content, size := protowire.ConsumeBytes(b)
		if size < 0 {
			return bad("a field ends early")
		}
		if err := fn(n, content); err != nil {
			return err
		}
		b = b[size:]
	}
	return nil
}

// texts returns the values of a BytesList: text, or binary if it is not UTF-8.
func texts(list []byte) (out []any, err error) {
	err = each(list, func(n protowire.Number, b []byte) error {
		if n != 1 {
			return nil
		}
		v, err := values.Type{Kind: values.Untyped}.Of(b)
		out = append(out, v)
		return err
	})
	return out, err
}

// numbers returns the values of an Int64List (varints) or a FloatList (fixed32). Values are packed or not.
func numbers(b []byte, of protowire.Type) (out []any, err error) {
	for len(b) > 0 {
		n, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return nil, bad("a list has a field without a number")
		}
		b = b[size:]
		size = protowire.ConsumeFieldValue(n, kind, b)
		if size < 0 {
			return nil, bad("a list ends early")
		}
		value := b[:size]
		b = b[size:]
		switch {
		case n != 1:
			continue
		case kind == protowire.BytesType:
			value, _ = protowire.ConsumeBytes(value)
		case kind != of:
			return nil, bad("a list has values of another type")
		}
		if out, err = appendNumbers(out, value, of); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// appendNumbers appends the values that follow one another in b.
func appendNumbers(out []any, b []byte, of protowire.Type) ([]any, error) {
	for len(b) > 0 {
		if of == protowire.Fixed32Type {
			v, size := protowire.ConsumeFixed32(b)
			if size < 0 {
				return nil, bad("a list of floats ends early")
			}
			out, b = append(out, float64(math.Float32frombits(v))), b[size:]
			continue
		}
		v, size := protowire.ConsumeVarint(b)
		if size < 0 {
			return nil, bad("a list of integers ends early")
		}
		out, b = append(out, int(v)), b[size:]
	}
	return out, nil
}
