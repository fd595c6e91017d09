package fields

import (
	"encoding/json"
	"math"
	"strings"
	"sync"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/parts/valid"
	"millrace/sources/values"
)

// mostParts bounds the fields of a template.
const mostParts = 64

// Template makes one text of several fields of a record: `{title}\n\n{body}`.
type Template struct {
	source string
	parts  []part
}

// part is a text of the template, and the field behind it.
type part struct {
	text  string
	field string // empty: the template ends with the text
}

// IsTemplate reports whether a text field is a template: it has a brace.
func IsTemplate(text string) bool { return strings.ContainsAny(text, "{}") }

// ParseTemplate reads a template. A field is a dotted path in braces; `{{` and `}}` are braces of the text. The
// error says what to write, and wraps millrace.ErrInvalid.
func ParseTemplate(source string) (*Template, error) {
	t := &Template{source: source}
	var text strings.Builder
	for rest := source; rest != ""; {
		i := strings.IndexAny(rest, "{}")
		if i < 0 {
			text.WriteString(rest)
			break
		}
		text.WriteString(rest[:i])
		brace := rest[i]
		rest = rest[i+1:]
		if rest != "" && rest[0] == brace {
			text.WriteByte(brace)
			rest = rest[1:]
			continue
		}
		end := strings.IndexAny(rest, "{}")
		if brace == '}' || end < 0 || rest[end] != '}' {
			return nil, millrace.Errorf(millrace.ErrInvalid,
				"a brace has no partner; write {{ or }} for a brace of the text")
		}
		field := rest[:end]
		if _, err := Parse(field); err != nil {
			return nil, err
		}
		t.parts = append(t.parts, part{text.String(), field})
		text.Reset()
		rest = rest[end+1:]
	}
	switch {
	case len(t.parts) == 0:
		return nil, millrace.Errorf(millrace.ErrInvalid,
			"it names no field; write fields in braces, as {title}")
	case len(t.parts) > mostParts:
		return nil, millrace.Errorf(millrace.ErrInvalid, "it names %d fields, at most %d are possible", len(t.parts),
			mostParts)
	}
	if text.Len() > 0 {
		t.parts = append(t.parts, part{text: text.String()})
	}
	return t, nil
}

// String returns the template as it was written.
func (t *Template) String() string { return t.source }

// Fields returns the fields in the order of the template.
func (t *Template) Fields() []string {
	var out []string
	for _, p := range t.parts {
		if p.field != "" {
			out = append(out, p.field)
		}
	}
	return out
}

// Text returns the text of a record. values are those of Fields. A missing field is a *sources.MissingError.
func (t *Template) Text(values []any) (string, error) {
	text, err := t.render(nil, values, false)
	return string(text), err
}

// render appends the text of a record. values are those of Fields. A missing field, and with skipEmpty a field without
// a byte, is a *sources.MissingError.
func (t *Template) render(dst []byte, values []any, skipEmpty bool) ([]byte, error) {
	for i, p := range t.parts {
		dst = append(dst, p.text...)
		if p.field == "" {
			break
		}
		at := len(dst)
		var err error
		if dst, err = appendText(dst, p.field, values[i]); err != nil {
			return dst, err
		}
		if len(dst) == at && skipEmpty {
			return dst, sources.NewMissingError(p.field, sources.Empty, nil)
		}
	}
	return dst, nil
}

// appendText appends a value of a field as text: a number as JSON has it.
func appendText(dst []byte, field string, value any) ([]byte, error) {
	switch v := value.(type) {
	case string:
		return append(dst, v...), nil
	case []byte:
		if !valid.UTF8(v) {
			return dst, millrace.Errorf(millrace.ErrBadSample, "field %q is not valid UTF-8", field)
		}
		return append(dst, v...), nil
	case *sources.MissingError:
		return dst, v
	case nil:
		return dst, sources.NewMissingError(field, sources.Null, nil)
	case float64:
		if math.IsInf(v, 0) || math.IsNaN(v) {
			return dst, millrace.Errorf(millrace.ErrBadSample, "field %q is %v, which is no number of a text", field, v)
		}
	case values.Number:
		return append(dst, v...), nil
	case int:
	default:
		return dst, millrace.Errorf(millrace.ErrBadSample, "field %q is %s, not a text or a number", field, KindOf(v))
	}
	number, err := json.Marshal(value)
	return append(dst, number...), err
}

// templateMaker makes documents by a template.
type templateMaker struct {
	template  *Template
	fields    []string
	encoder   *sources.Encoder
	skipEmpty bool
	texts     sync.Pool // of *[]byte
}

// NewTemplateMaker returns the maker of documents whose text a template makes. With skipEmpty, a record with an empty
// field has no document.
func NewTemplateMaker(t *Template, encoder *sources.Encoder, skipEmpty bool) sources.Maker {
	return &templateMaker{template: t, fields: t.Fields(), encoder: encoder, skipEmpty: skipEmpty,
		texts: sync.Pool{New: func() any { return new([]byte) }}}
}

// Fields implements sources.Maker.
func (m *templateMaker) Fields() []string { return m.fields }

// Settings implements sources.Maker.
func (m *templateMaker) Settings() string { return "template 1 " + m.template.source }

// MakerTraits implements sources.Maker.
func (*templateMaker) MakerTraits() sources.MakerTraits { return sources.MakerTraits{} }

// mostSpare bounds the memory of a text that is kept for the next one.
const mostSpare = 1 << 20

// Document implements sources.Maker.
func (m *templateMaker) Document(dst []uint32, _ *sources.Record, values []any, tell func()) ([]uint32, int64, error) {
	buf := m.texts.Get().(*[]byte)
	text, err := m.template.render((*buf)[:0], values, m.skipEmpty)
	if err == nil {
		dst = m.encoder.Append(dst, text, tell)
	}
	if cap(text) <= mostSpare {
		*buf = text
		m.texts.Put(buf)
	}
	return dst, int64(len(text)), err
}
