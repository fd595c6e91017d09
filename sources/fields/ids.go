package fields

import (
	"fmt"
	"slices"

	"millrace"
	"millrace/internal/tokenid"
	"millrace/sources"
)

// mostID is the highest id of a token.
const mostID = int(tokenid.Begin&^tokenid.Untrained) - 1

// idsMaker makes documents of a column of token ids.
type idsMaker struct {
	fields []string // of the ids, and of the mask if there is one
}

// NewIDsMaker returns the maker of documents whose tokens are the values of a field, as they are. Where the field mask
// has 0 or false, the token is not trained on; without a field mask, all are.
func NewIDsMaker(tokens, mask string) sources.Maker {
	m := &idsMaker{fields: []string{tokens}}
	if mask != "" {
		m.fields = append(m.fields, mask)
	}
	return m
}

// Fields implements sources.Maker.
func (m *idsMaker) Fields() []string { return m.fields }

// Settings implements sources.Maker.
func (m *idsMaker) Settings() string {
	settings := "ids 1 " + m.fields[0]
	if len(m.fields) > 1 {
		settings += " masked by " + m.fields[1]
	}
	return settings
}

// Document implements sources.Maker.
func (m *idsMaker) Document(dst []uint32, _ *sources.Record, values []any, _ func()) ([]uint32, int64, error) {
	at := len(dst)
	var err error
	if dst, err = m.appendIDs(dst, values[0]); err != nil || len(m.fields) == 1 {
		return dst, 0, err
	}
	return dst, 0, m.mask(dst[at:], values[1])
}

// appendIDs appends the ids of a value. One number is a list of one: tf.train.Example does not tell them apart.
func (m *idsMaker) appendIDs(dst []uint32, value any) ([]uint32, error) {
	switch v := value.(type) {
	case int:
		return m.appendIDs(dst, []any{v})
	case []uint32:
		for i, id := range v {
			if int(id) > mostID {
				return dst, m.wrong(0, i, id)
			}
		}
		return append(dst, v...), nil
	case []any:
		dst = slices.Grow(dst, len(v))
		for i, x := range v {
			id, ok := x.(int)
			if !ok || id < 0 || id > mostID {
				return dst, m.wrong(0, i, x)
			}
			dst = append(dst, uint32(id))
		}
		return dst, nil
	}
	return dst, m.unfit(0, value)
}

// mask marks the tokens that are not trained on.
func (m *idsMaker) mask(ids []uint32, value any) error {
	n := 0
	if v, ok := value.(int); ok && len(ids) == 1 {
		value = []any{v}
	}
	switch v := value.(type) {
	case []uint32:
		n = len(v)
		for i := range min(n, len(ids)) {
			if v[i] > 1 {
				return m.wrong(1, i, v[i])
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
				return m.wrong(1, i, v[i])
			}
		}
	default:
		return m.unfit(1, value)
	}
	if n != len(ids) {
		return millrace.Errorf(
			millrace.ErrBadSample,
			"field %q has %d values for the %d ids of field %q",
			m.fields[1],
			n,
			len(ids),
			m.fields[0],
		)
	}
	return nil
}

// wrong returns the error of a list's value that is no id, or of a mask's that is neither 0 nor 1.
func (m *idsMaker) wrong(field, at int, value any) error {
	want := fmt.Sprintf("a token id from 0 to %d", mostID)
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
