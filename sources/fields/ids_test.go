package fields_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"millrace"
	"millrace/internal/tokenid"
	"millrace/sources"
	"millrace/sources/fields"
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
		maker := fields.NewIDsMaker("ids", []string{"", "mask"}[len(c.values)-1], "")
		got, n, err := maker.Document([]uint32{9}, nil, c.values, nil)
		if err != nil || n != 0 || !slices.Equal(got, append([]uint32{9}, c.want...)) ||
			len(maker.Fields()) != len(c.values) {
			t.Errorf("%v: got %v, %d, %v", c.values, got, n, err)
		}
	}
}

// TestUnfitIDs: a value that is no id, or a mask that does not fit, makes a bad record with a reason.
func TestUnfitIDs(t *testing.T) {
	maker := fields.NewIDsMaker("ids", "mask", "")
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
		maker := fields.NewIDsMaker("ids", "mask", "starts")
		got, _, err := maker.Document(nil, nil, []any{good, mask, c.starts}, nil)
		switch {
		case c.err == "" && (err != nil || !slices.Equal(got, c.want)):
			t.Errorf("%v: %x, %v", c.starts, got, err)
		case c.err != "" && (!errors.Is(err, millrace.ErrBadSample) || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%v: %v, want %q", c.starts, err, c.err)
		}
	}
	alone := fields.NewIDsMaker("ids", "", "starts")
	got, _, err := alone.Document(nil, nil, []any{good, []uint32{0, 2}}, nil)
	if want := []uint32{1, 2, 3 | s, 4}; err != nil || !slices.Equal(got, want) || len(alone.Fields()) != 2 {
		t.Errorf("without a mask: %x, %v", got, err)
	}
}
