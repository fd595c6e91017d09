package fields

import (
	"fmt"
	"slices"

	"millrace"
	"millrace/internal/tokenid"
	"millrace/sources"
)

// idsMaker makes documents of a column of token ids.
type idsMaker struct {
	fields       []string // of the ids, and of the mask and the starts if there are any
	mask, starts int      // their places in fields; 0: there is none
}

// NewIDsMaker returns the maker of documents whose tokens are the values of a field, as they are. Where the field mask
// has 0 or false, the token is not trained on; without a field mask, all are. The field starts has the places among the
// tokens at which the sequences of a packed document begin; without it, a document is one sequence.
func NewIDsMaker(tokens, mask, starts string) sources.Maker {
	m := &idsMaker{fields: []string{tokens}}
	if mask != "" {
		m.mask, m.fields = len(m.fields), append(m.fields, mask)
	}
	if starts != "" {
		m.starts, m.fields = len(m.fields), append(m.fields, starts)
	}
	return m
}

// Fields implements sources.Maker.
func (m *idsMaker) Fields() []string { return m.fields }

// Settings implements sources.Maker.
func (m *idsMaker) Settings() string {
	settings := "ids 1 " + m.fields[0]
	if m.mask > 0 {
		settings += " masked by " + m.fields[m.mask]
	}
	if m.starts > 0 {
		settings += " starts at " + m.fields[m.starts]
	}
	return settings
}

// Document implements sources.Maker.
func (m *idsMaker) Document(dst []uint32, _ *sources.Record, values []any, _ func()) ([]uint32, int64, error) {
	at := len(dst)
	dst, err := m.appendIDs(dst, values[0])
	if err == nil && m.mask > 0 {
		err = m.leaveOut(dst[at:], values[m.mask])
	}
	if err == nil && m.starts > 0 {
		err = m.begin(dst[at:], values[m.starts])
	}
	return dst, 0, err
}

// begin marks the first tokens of the sequences behind the first one.
func (m *idsMaker) begin(ids []uint32, value any) error {
	if v, ok := value.(int); ok {
		value = []any{v}
	}
	next, last := 0, -1
	mark := func(start any, at int) error {
		if at <= last || at >= len(ids) || next == 0 && at != 0 {
			return millrace.Errorf(millrace.ErrBadSample, "field %q has %v as value %d, want 0 first and then "+
				"ascending places among the %d ids of field %q", m.fields[m.starts], start, next, len(ids), m.fields[0])
		}
		if at > 0 {
			ids[at] |= tokenid.Start
		}
		next, last = next+1, at
		return nil
	}
	switch v := value.(type) {
	case []uint32:
		for _, start := range v {
			if err := mark(start, int(start)); err != nil {
				return err
			}
		}
	case []any:
		for _, start := range v {
			at, ok := start.(int)
			if !ok {
				at = -1
			}
			if err := mark(start, at); err != nil {
				return err
			}
		}
	default:
		return m.unfit(m.starts, value)
	}
	return nil
}

// appendIDs appends the ids of a value. One number is a list of one: tf.train.Example does not tell them apart.
func (m *idsMaker) appendIDs(dst []uint32, value any) ([]uint32, error) {
	switch v := value.(type) {
	case int:
		return m.appendIDs(dst, []any{v})
	case []uint32:
		for i, id := range v {
			if id > tokenid.Most {
				return dst, m.wrong(0, i, id)
			}
		}
		return append(dst, v...), nil
	case []any:
		dst = slices.Grow(dst, len(v))
		for i, x := range v {
			id, ok := x.(int)
			if !ok || id < 0 || id > tokenid.Most {
				return dst, m.wrong(0, i, x)
			}
			dst = append(dst, uint32(id))
		}
		return dst, nil
	}
	return dst, m.unfit(0, value)
}

// leaveOut marks the tokens that are not trained on.
func (m *idsMaker) leaveOut(ids []uint32, value any) error {
	n := 0
	if v, ok := value.(int); ok && len(ids) == 1 {
		value = []any{v}
	}
	switch v := value.(type) {
	case []uint32:
		n = len(v)
		for i := range min(n, len(ids)) {
			if v[i] > 1 {
				return m.wrong(m.mask, i, v[i])
			}
			if v[i] == 0 {
				ids[i] |= tokenid.Untrained
			}
		}
	case []any:
		n = len(v)
		for i := range min(n, len(ids)) {
			switch v[i] {
			case 0, false, 0.0:
				ids[i] |= tokenid.Untrained
			case 1, true, 1.0:
			default:
				return m.wrong(m.mask, i, v[i])
			}
		}
	default:
		return m.unfit(m.mask, value)
	}
	if n != len(ids) {
		return millrace.Errorf(
			millrace.ErrBadSample,
			"field %q has %d values for the %d ids of field %q",
			m.fields[m.mask],
			n,
			len(ids),
			m.fields[0],
		)
	}
	return nil
}

// wrong returns the error of a list's value that is no id, or of a mask's that is neither 0 nor 1.
func (m *idsMaker) wrong(field, at int, value any) error {
	want := fmt.Sprintf("a token id from 0 to %d", tokenid.Most)
	if field > 0 {
		want = "0 or 1"
	}
	return millrace.Errorf(
		millrace.ErrBadSample,
		"field %q has %v as value %d, want %s",
		m.fields[field],
		value,
		at,
		want,
	)
}

// unfit returns the error of a value that is no list.
func (m *idsMaker) unfit(field int, value any) error {
	switch v := value.(type) {
	case *sources.MissingError:
		return v
	case nil:
		return sources.NewMissingError(m.fields[field], sources.Null, nil)
	}
	return millrace.Errorf(
		millrace.ErrBadSample,
		"field %q is %s, not a list of numbers",
		m.fields[field],
		KindOf(value),
	)
}
