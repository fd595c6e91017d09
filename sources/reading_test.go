package sources

import (
	"errors"
	"math"
	"strings"
	"testing"

	"millrace"
	vals "millrace/sources/values"
)

// TestPassedFields have a JSON form for every value, and a bound.
func TestPassedFields(t *testing.T) {
	s := &Source{spec: Spec{Passed: []string{"a", "b.c"}}}
	s.spec = s.spec.withOthers()
	j := s.Judge()
	object := vals.Object{Keys: []string{"k"}, Values: []any{[]any{math.NaN(), []byte("y")}}}
	for want, values := range map[string][]any{
		`{"a":1,"b.c":"<é>"}`:              {1, "<é>"},
		`{"a":null,"b.c":true}`:            {nil, true},
		`{"a":null,"b.c":null}`:            {math.NaN(), math.Inf(-1)},
		`{"a":"x\ufffd","b.c":[1,2]}`:      {[]byte("x\xff"), []uint32{1, 2}},
		`{"a":{"k":[null,"y"]},"b.c":0.5}`: {object, 0.5},
	} {
		got, err := j.Passed(&Record{Others: values})
		if want = strings.ReplaceAll(want, `\ufffd`, "\ufffd"); err != nil || got != want {
			t.Errorf("%v: got %s, %v; want %s", values, got, err, want)
		}
	}
	_, err := j.Passed(&Record{Others: []any{1, strings.Repeat("x", PassedBytes)}})
	if !errors.Is(err, millrace.ErrBadSample) || !strings.Contains(err.Error(), `"b.c" takes 4105; the limit is 4096`) {
		t.Errorf("got %v", err)
	}
	fits := strings.Repeat("x", PassedBytes-len(`{"a":"","b.c":null}`))
	if got, err := j.Passed(&Record{Others: []any{fits, nil}}); err != nil || len(got) != PassedBytes {
		t.Errorf("%d bytes: %v", len(got), err)
	}
	if got, err := new(Source).Judge().Passed(&Record{}); got != "" || err != nil {
		t.Errorf("a source without fields passes %s, %v", got, err)
	}
}

// TestPassedFieldsDecideTheTransform: lengths that are kept belong to the fields with which they were found.
func TestPassedFieldsDecideTheTransform(t *testing.T) {
	format := Spec{Format: namedFormat{}}
	seen := map[millrace.Digest][]string{}
	for _, passed := range [][]string{nil, {"a"}, {"b"}, {"a", "b"}} {
		format.Passed = passed
		if was, ok := seen[format.fingerprint()]; ok {
			t.Errorf("%v and %v have one transform", was, passed)
		}
		seen[format.fingerprint()] = passed
	}
}

type namedFormat struct{ Format }

func (namedFormat) Name() string   { return "named" }
func (namedFormat) Traits() Traits { return Traits{} }
