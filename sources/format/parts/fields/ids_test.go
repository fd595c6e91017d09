package fields_test

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"millrace"
	"millrace/internal/tokenid"
	"millrace/sources"
	"millrace/sources/format/parts/fields"
)

// TestIDs: ids are taken as they are, and those that the mask leaves out are marked.
func TestIDs(t *testing.T) {
	const u = tokenid.Untrained
	for _, c := range []struct {
		values []any
		want   []uint32
	}{
		{[]any{[]uint32{1, tokenid.Most}}, []uint32{1, tokenid.Most}},
		{[]any{[]any{0, 7}}, []uint32{0, 7}},
		{[]any{[]any{}}, nil},
		{[]any{7}, []uint32{7}},
		{[]any{7, 0}, []uint32{7 | u}},
		{[]any{[]uint32{1, 2, 3}, []uint32{0, 1, 0}}, []uint32{1 | u, 2, 3 | u}},
		{[]any{[]any{1, 2, 3, 4, 5, 6}, []any{0, 1, false, true, 0.0, 1.0}}, []uint32{1 | u, 2, 3 | u, 4, 5 | u, 6}},
	} {
		maker := fields.NewIDsMaker(fields.IDs{Tokens: "ids", Mask: []string{"", "mask"}[len(c.values)-1]})
		got, n, err := maker.Document([]uint32{9}, nil, c.values, nil)
		if err != nil || n != 0 || !slices.Equal(got, append([]uint32{9}, c.want...)) ||
			len(maker.Fields()) != len(c.values) {
			t.Errorf("%v: got %v, %d, %v", c.values, got, n, err)
		}
	}
}

// TestUnfitIDs: a value that is no id, or a mask that does not fit, makes a bad record with a reason.
func TestUnfitIDs(t *testing.T) {
	maker := fields.NewIDsMaker(fields.IDs{Tokens: "ids", Mask: "mask"})
	good := []uint32{1, 2}
	for _, c := range []struct {
		ids, mask any
		want      string
		missing   bool
	}{
		{nil, good, `field "ids" is null`, true},
		{good, nil, `field "mask" is null`, true},
		{sources.NewMissingError("ids", sources.Absent, nil), good, `field "ids" is absent`, true},
		{[]uint32{1, 1 << 29}, good, `field "ids" has 536870912 as value 1, want a token id`, false},
		{[]any{1, -1}, good, `field "ids" has -1 as value 1`, false},
		{[]any{1.5, 1}, good, `field "ids" has 1.5 as value 0`, false},
		{[]any{"x"}, good, `field "ids" has x as value 0`, false},
		{"1 2", good, `field "ids" is a text, not a list`, false},
		{good, []any{1}, `field "mask" has 1 values for the 2 ids of field "ids"`, false},
		{good, []uint32{1, 1, 1}, `field "mask" has 3 values for the 2 ids`, false},
		{good, []any{1, 2}, `field "mask" has 2 as value 1, want 0 or 1`, false},
		{good, []uint32{1, 2}, `field "mask" has 2 as value 1, want 0 or 1`, false},
		{good, 1, `field "mask" is a number`, false},
	} {
		_, _, err := maker.Document(nil, nil, []any{c.ids, c.mask}, nil)
		var missing *sources.MissingError
		if err == nil || !strings.Contains(err.Error(), c.want) || errors.As(err, &missing) != c.missing ||
			!errors.Is(err, millrace.ErrBadSample) {
			t.Errorf("%v, %v: %v, want %q", c.ids, c.mask, err, c.want)
		}
	}
}

// TestStarts: the first tokens of all sequences but the first are marked, and starts that do not fit make a bad record.
func TestStarts(t *testing.T) {
	const u, s = tokenid.Untrained, tokenid.Start
	good, mask := []uint32{1, 2, 3, 4}, []uint32{1, 0, 0, 1}
	for _, c := range []struct {
		starts any
		want   []uint32
		err    string
	}{
		{[]uint32{0}, []uint32{1, 2 | u, 3 | u, 4}, ""},
		{0, []uint32{1, 2 | u, 3 | u, 4}, ""},
		{[]uint32{0, 2, 3}, []uint32{1, 2 | u, 3 | s, 4 | s}, ""},
		{[]any{0, 1}, []uint32{1, 2 | s, 3 | u, 4}, ""},
		{[]any{}, []uint32{1, 2 | u, 3 | u, 4}, ""},
		{[]uint32{1, 2}, nil, `field "starts" has 1 as value 0, want 0 first`},
		{[]uint32{0, 2, 2}, nil, `field "starts" has 2 as value 2`},
		{[]uint32{0, 4}, nil, `field "starts" has 4 as value 1, want 0 first and then ascending places among`},
		{[]any{0, "x"}, nil, `field "starts" has x as value 1`},
		{[]any{0, -1}, nil, `field "starts" has -1 as value 1`},
		{"0", nil, `field "starts" is a text, not a list`},
		{nil, nil, `field "starts" is null`},
	} {
		maker := fields.NewIDsMaker(fields.IDs{Tokens: "ids", Mask: "mask", Starts: "starts"})
		got, _, err := maker.Document(nil, nil, []any{good, mask, c.starts}, nil)
		switch {
		case c.err == "" && (err != nil || !slices.Equal(got, c.want)):
			t.Errorf("%v: %x, %v", c.starts, got, err)
		case c.err != "" && (!errors.Is(err, millrace.ErrBadSample) || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%v: %v, want %q", c.starts, err, c.err)
		}
	}
	alone := fields.NewIDsMaker(fields.IDs{Tokens: "ids", Starts: "starts"})
	got, _, err := alone.Document(nil, nil, []any{good, []uint32{0, 2}}, nil)
	if want := []uint32{1, 2, 3 | s, 4}; err != nil || !slices.Equal(got, want) || len(alone.Fields()) != 2 {
		t.Errorf("without a mask: %x, %v", got, err)
	}
}

// TestLabels: -100 is untrained, and another label is the id itself. Anything else is named.
func TestLabels(t *testing.T) {
	maker := fields.NewIDsMaker(fields.IDs{Tokens: "ids", Labels: "labels"})
	if got := maker.Settings(); got != "ids 1 ids labelled by labels" {
		t.Errorf("settings %q", got)
	}
	for _, c := range []struct{ ids, labels, want, err any }{
		{[]uint32{5, 6}, []uint32{5, 6}, []uint32{5, 6}, nil},
		{[]any{5, 6, 7}, []any{-100, 6, -100}, []uint32{5 | tokenid.Untrained, 6, 7 | tokenid.Untrained}, nil},
		{[]any{}, []any{}, []uint32{}, nil},
		{5, -100, []uint32{5 | tokenid.Untrained}, nil},
		{[]any{5, 6, 7}, []any{-100, 7, 8}, nil,
			`field "labels" has 7 as value 1, want the id 6 of field "ids" or -100; it is the next id: ` +
				"labels that are shifted already are not read"},
		{[]uint32{5, 6}, []uint32{5, 1}, nil, `field "labels" has 1 as value 1, want the id 6 of field "ids" or -100`},
		{[]any{5, 6}, []any{-1, 6}, nil, `field "labels" has -1 as value 0, want the id 5 of field "ids" or -100`},
		{[]any{5, 6}, []any{-100.0, 6}, nil,
			`field "labels" has -100 as value 0, want the id 5 of field "ids" or -100`},
		{[]any{5, 6}, []any{5}, nil, `field "labels" has 1 values for the 2 ids of field "ids"`},
		{[]any{5, 6}, []any{}, nil, `field "labels" has 0 values for the 2 ids of field "ids"`},
		{[]any{5, 6}, "x", nil, `field "labels" is a text, not a list of numbers`},
		{[]any{5, 6}, nil, nil, `field "labels" is null`},
	} {
		got, _, err := maker.Document([]uint32{9}, &sources.Record{}, []any{c.ids, c.labels}, nil)
		switch {
		case c.err != nil:
			if err == nil || !strings.Contains(err.Error(), c.err.(string)) {
				t.Errorf("%v labelled by %v: %v, want %s", c.ids, c.labels, err, c.err)
			}
		case err != nil || !slices.Equal(got[1:], c.want.([]uint32)):
			t.Errorf("%v labelled by %v: %v, %v, want %v", c.ids, c.labels, got, err, c.want)
		}
	}
}

// TestIDsInBytes: bytes are ids of the type that the source names, and are refused without one.
func TestIDsInBytes(t *testing.T) {
	le := binary.LittleEndian
	var good []byte
	for _, id := range []uint64{0, 50256, 1<<29 - 1} {
		good = le.AppendUint64(good, id)
	}
	for _, c := range []struct {
		dtype string
		value []byte
		want  []uint32
		says  string
	}{
		{dtype: "int64", value: good, want: []uint32{0, 50256, 1<<29 - 1}},
		{dtype: "uint16", value: []byte{1, 0, 2, 1}, want: []uint32{1, 258}},
		{dtype: "int64", value: nil, want: nil},
		{dtype: "", value: good, says: "write their type, as `dtype: int64`"},
		{dtype: "int64", value: good[:20], says: "20 bytes, which are no whole number of int64"},
		{dtype: "int64", value: le.AppendUint64(slices.Clip(good), 1<<31), says: "2147483648 as value 3"},
		{dtype: "int64", value: le.AppendUint64(slices.Clip(good), 1<<63), says: "-9223372036854775808 as value 3"},
		{dtype: "int64", value: le.AppendUint64(slices.Clip(good), 1<<29), says: "536870912 as value 3"},
	} {
		maker := fields.NewIDsMaker(fields.IDs{Tokens: "ids", DType: c.dtype})
		got, _, err := maker.Document(nil, &sources.Record{}, []any{append([]byte{}, c.value...)}, nil)
		if c.says == "" && (err != nil || !slices.Equal(got, c.want)) ||
			c.says != "" && (!errors.Is(err, millrace.ErrBadSample) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s of %d bytes: %v %v, want %v %q", c.dtype, len(c.value), got, err, c.want, c.says)
		}
	}
}
