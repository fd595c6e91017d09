package fields

import (
	"fmt"
	"slices"

	"millrace"
	"millrace/internal/tokenid"
	"millrace/sources"
	"millrace/sources/format/parts/arrays"
)

// IDs names the fields of documents of token ids. All but Tokens may be empty.
type IDs struct {
	Tokens string // the ids
	DType  string // of ids that are stored as bytes, by NumPy's name
	Mask   string // for each id a number: 0 or false if the token is not trained on, else 1 or true
	Labels string // for each id itself, or UntrainedLabel
	Starts string // the places among the ids at which the sequences of a packed document begin
}

// UntrainedLabel is the label of a token that is not trained on.
const UntrainedLabel = -100

// idsMaker makes documents of a column of token ids.
type idsMaker struct {
	fields []string // of the ids, and of the others if there are any
	dtype  string   // of ids that are stored as bytes; empty: none are
	// The places of the others in fields; 0: there is none.
	mask, labels, starts int
}

// NewIDsMaker returns the maker of documents whose tokens are the values of a field, as they are.
func NewIDsMaker(names IDs) sources.Maker {
	m := &idsMaker{fields: []string{names.Tokens}, dtype: names.DType}
	add := func(place *int, name string) {
		if name != "" {
			*place, m.fields = len(m.fields), append(m.fields, name)
		}
	}
	add(&m.mask, names.Mask)
	add(&m.labels, names.Labels)
	add(&m.starts, names.Starts)
	return m
}

// MakerTraits implements sources.Maker. With a further field, some tokens may be left out of the loss.
func (m *idsMaker) MakerTraits() (t sources.MakerTraits) {
	if len(m.fields) > 1 {
		t.Untrained = m.untrained
	}
	return t
}

// untrained is sources.MakerTraits.Untrained. The starts of sequences alone make no document bad.
func (m *idsMaker) untrained(*sources.Record, []any) error {
	name, what := "", ""
	switch {
	case m.mask > 0:
		name, what = m.fields[m.mask], "is 0 for each of them"
	case m.labels > 0:
		name, what = m.fields[m.labels], fmt.Sprintf("is %d for each of them", UntrainedLabel)
	default:
		return nil
	}
	if m.mask > 0 && m.labels > 0 {
		what = fmt.Sprintf("is 0, or field %q is %d, for each of them", m.fields[m.labels], UntrainedLabel)
	}
	return millrace.Errorf(
		millrace.ErrBadSample, "no token is trained on: behind the first id of field %q, field %q %s",
		m.fields[0], name, what)
}

// Fields implements sources.Maker.
func (m *idsMaker) Fields() []string { return m.fields }

// Settings implements sources.Maker.
func (m *idsMaker) Settings() string {
	settings := "ids 1 " + m.fields[0]
	if m.mask > 0 {
		settings += " masked by " + m.fields[m.mask]
	}
	if m.labels > 0 {
		settings += " labelled by " + m.fields[m.labels]
	}
	if m.starts > 0 {
		settings += " starts at " + m.fields[m.starts]
	}
	if m.dtype != "" {
		settings += " of " + m.dtype
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
	if err == nil && m.labels > 0 {
		err = m.label(dst[at:], values[m.labels])
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

// appendIDs appends the ids of a value. One number is a list of one: tf.train.Example does not distinguish them.
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
	case []byte:
		return m.appendBytes(dst, v)
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

// appendBytes appends the ids that are stored as bytes.
func (m *idsMaker) appendBytes(dst []uint32, value []byte) ([]uint32, error) {
	t, ok := arrays.Named(m.dtype)
	if !ok {
		return dst, millrace.Errorf(millrace.ErrBadSample,
			"field %q has %d bytes and no list of numbers: write their type, as `dtype: int64`", m.fields[0],
			len(value))
	}
	if len(value)%t.Size != 0 {
		return dst, millrace.Errorf(millrace.ErrBadSample, "field %q has %d bytes, which are no whole number of %s",
			m.fields[0], len(value), m.dtype)
	}
	if ids, ok := t.IDs(value); ok {
		return m.appendIDs(dst, ids)
	}
	for i := 0; ; i += t.Size {
		x, err := t.Scalar(value[i : i+t.Size])
		if id, ok := x.(int); err != nil || !ok || id < 0 || id > tokenid.Most {
			return dst, m.wrong(0, i/t.Size, x)
		}
	}
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
	return m.asMany(m.mask, n, len(ids))
}

// label marks the tokens whose label is UntrainedLabel.
func (m *idsMaker) label(ids []uint32, value any) error {
	if v, ok := value.(int); ok && len(ids) == 1 {
		value = []any{v}
	}
	switch v := value.(type) {
	case []uint32: // all are trained on
		for i := range min(len(v), len(ids)) {
			if v[i] != ids[i] {
				return m.unequal(ids, i, v[i])
			}
		}
		return m.asMany(m.labels, len(v), len(ids))
	case []any:
		for i := range min(len(v), len(ids)) {
			switch label, ok := v[i].(int); {
			case ok && label == UntrainedLabel:
				ids[i] |= tokenid.Untrained
			case !ok || label != int(ids[i]):
				return m.unequal(ids, i, v[i])
			}
		}
		return m.asMany(m.labels, len(v), len(ids))
	}
	return m.unfit(m.labels, value)
}

// unequal returns the error of a label that differs from its token and from UntrainedLabel.
func (m *idsMaker) unequal(ids []uint32, at int, label any) error {
	hint := ""
	if at+1 < len(ids) && fmt.Sprint(label) == fmt.Sprint(ids[at+1]) {
		hint = "; it is the next id: labels that are shifted already are not read"
	}
	return millrace.Errorf(millrace.ErrBadSample, "field %q has %v as value %d, want the id %d of field %q or %d%s",
		m.fields[m.labels], label, at, ids[at]&^tokenid.Untrained, m.fields[0], UntrainedLabel, hint)
}

// asMany returns an error if a field has not one value for each id.
func (m *idsMaker) asMany(field, n, ids int) error {
	if n == ids {
		return nil
	}
	return millrace.Errorf(millrace.ErrBadSample, "field %q has %d values for the %d ids of field %q",
		m.fields[field], n, ids, m.fields[0])
}

// wrong returns the error of a list's value that is no id, or of a mask's value other than 0 and 1.
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
