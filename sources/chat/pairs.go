package chat

import (
	"fmt"
	"unicode/utf8"

	"millrace"
	"millrace/internal/tokenid"
	"millrace/sources"
	"millrace/sources/fields"
)

// TooLong is the treatment of documents that are longer than a sequence.
type TooLong struct {
	Tokens   int  // of a sequence
	Truncate bool // keep the first Tokens
	Drop     bool // keep none; otherwise the document is cut into pieces like a text
}

// cut applies the treatment to the document behind dst[:first], and notes in the record if it was too long.
func (l TooLong) cut(dst []uint32, first int, r *sources.Record) []uint32 {
	r.TooLong = len(dst)-first > l.Tokens
	switch {
	case !r.TooLong:
	case l.Drop:
		return dst[:first]
	case l.Truncate:
		return dst[:first+l.Tokens]
	}
	return dst
}

// Pair describes documents of a prompt and a completion. The loss is on the completion.
type Pair struct {
	Prompt, Completion string // dotted paths, or templates of fields
	BOS, EOS           bool   // put in front of and behind the document
	TooLong            TooLong
}

type pairMaker struct {
	Pair
	t         *encoder
	templates [2]*fields.Template // of the prompt and the completion; nil: a field
	names     []string            // of all fields
}

// LimitsLength implements sources.Limiter.
func (*pairMaker) LimitsLength() bool { return true }

// NewPairMaker returns the maker of the documents of pairs. The error of a template says what to write.
func NewPairMaker(t Tokenizer, p Pair) (sources.Maker, error) {
	m := &pairMaker{Pair: p, t: newEncoder(t)}
	for i, text := range [2]string{p.Prompt, p.Completion} {
		if !fields.IsTemplate(text) {
			m.names = append(m.names, text)
			continue
		}
		var err error
		if m.templates[i], err = fields.ParseTemplate(text); err != nil {
			return nil, err
		}
		m.names = append(m.names, m.templates[i].Fields()...)
	}
	return m, nil
}

// Fields implements sources.Maker.
func (m *pairMaker) Fields() []string { return m.names }

// Settings implements sources.Maker.
func (m *pairMaker) Settings() string { return fmt.Sprintf("pair 1 %+v", m.Pair) }

// Document implements sources.Maker.
func (m *pairMaker) Document(dst []uint32, r *sources.Record, values []any, tell func()) ([]uint32, int64, error) {
	var p passage
	for i, template := range m.templates {
		text, n, err := "", 1, error(nil)
		if template == nil {
			text, err = textOf(m.names[len(m.names)-len(values)], values[0])
		} else {
			n = len(template.Fields())
			text, err = template.Text(values[:n])
		}
		if err != nil {
			return dst, 0, err
		}
		for _, c := range text {
			p.add(c, false, i == 1)
		}
		values = values[n:]
	}
	first := len(dst)
	if id, ok := m.t.BOS(); ok && m.BOS {
		dst = append(dst, id|tokenid.Untrained)
	}
	dst = encode(dst, m.t, &p, tell)
	if id, ok := m.t.EOS(); ok && m.EOS {
		dst = append(dst, id)
	}
	return m.TooLong.cut(dst, first, r), int64(len(p.text)), nil
}

// textOf returns the text of a field.
func textOf(name string, v any) (string, error) {
	if err := missing(name, v); err != nil {
		return "", err
	}
	switch v := v.(type) {
	case string:
		return v, nil
	case []byte:
		if utf8.Valid(v) {
			return string(v), nil
		}
		return "", millrace.Errorf(millrace.ErrBadSample, "field %q is not valid UTF-8", name)
	}
	return "", millrace.Errorf(millrace.ErrBadSample, "field %q is %s, not a text", name, fields.KindOf(v))
}
