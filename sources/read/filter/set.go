package filter

import (
	"fmt"
	"slices"
	"strings"

	"github.com/expr-lang/expr/vm"

	"millrace"
	"millrace/sources/values"
)

// Own is the bit of a source's own filter. A record that it refuses is never planned. Other bits refuse a record for
// one stage. A record that has no document because a field is missing, and that the source leaves out, has the bits Own
// and Skipped. The bit TooLong refuses nothing: the document was longer than its source allows (Record.TooLong).
const (
	Own     = 1
	TooLong = 1 << MostOfASource
	Skipped = 1 << 31
)

// Set has the filters of one source, in order. The answer of filter i is bit i. It is read-only and safe for concurrent
// use. The nil Set refuses nothing.
type Set struct {
	filters []*Filter
	fields  []string
}

// NewSet returns the set of filters, nil if there are none. A nil filter refuses nothing and keeps its bit.
func NewSet(filters ...*Filter) (*Set, error) {
	if len(filters) > MostOfASource {
		return nil, millrace.Errorf(millrace.ErrInvalid, "%d filters of one source, at most %d are possible",
			len(filters), MostOfASource)
	}
	s := &Set{filters: filters}
	some := false
	for _, f := range filters {
		if f != nil {
			some = true
			s.fields = append(s.fields, f.fields...)
		}
	}
	if !some {
		return nil, nil
	}
	slices.Sort(s.fields)
	s.fields = slices.Compact(s.fields)
	return s, nil
}

// EmptySet returns a set without filters that is not nil: its source has records to leave out or to count all the same.
func EmptySet() *Set { return &Set{filters: []*Filter{nil}} }

// Fields returns the fields of a record that the filters name, sorted.
func (s *Set) Fields() []string {
	if s == nil {
		return nil
	}
	return s.fields
}

// Texts returns the expressions, empty for a bit that refuses nothing.
func (s *Set) Texts() []string {
	if s == nil {
		return nil
	}
	out := make([]string, len(s.filters))
	for i, f := range s.filters {
		if f != nil {
			out[i] = f.text
		}
	}
	return out
}

// Judge applies a Set to records, one after the other. It is not safe for concurrent use.
type Judge struct {
	set     *Set
	machine vm.VM
	env     map[string]any
}

// Judge returns a judge for one goroutine.
func (s *Set) Judge() *Judge {
	return &Judge{set: s, machine: vm.VM{MemoryBudget: mostMemory}, env: make(map[string]any)}
}

// Refused returns the bits of the filters that refuse a record. The values are those of Set.Fields: string, int,
// float64, bool, a values.Number with a point, or nil if the record has none; no filter can read another kind. The
// error names a filter that cannot be applied to the record, with the reason, and wraps millrace.ErrBadSample.
func (j *Judge) Refused(values []any, tokens, bytes int) (bits uint32, err error) {
	if j.set == nil {
		return 0, nil
	}
	if err := j.enter(values); err != nil {
		return 0, err
	}
	j.env[tokensName], j.env[bytesName] = tokens, bytes
	for i, f := range j.set.filters {
		refused, err := j.refuses(f)
		if err != nil {
			return 0, err
		}
		if refused {
			bits |= 1 << i
		}
	}
	return bits, nil
}

// RefusedAlone returns the bit Own if the source's own filter refuses a record without a document. A filter that asks
// for the document's lengths cannot be applied.
func (j *Judge) RefusedAlone(values []any) (bits uint32, err error) {
	if err := j.enter(values); err != nil {
		return 0, err
	}
	j.env[tokensName], j.env[bytesName] = nil, nil
	refused, err := j.refuses(j.set.filters[0])
	if refused {
		bits = Own
	}
	return bits, err
}

// enter sets the values of a record.
func (j *Judge) enter(row []any) error {
	for i, name := range j.set.fields {
		j.env[name] = nil
		if i >= len(row) {
			continue
		}
		switch v := row[i].(type) {
		case nil, string, int, float64, bool:
			j.env[name] = v
		case values.Number:
			if v.IsWhole() {
				return millrace.Errorf(millrace.ErrBadSample, "field %q is %s, and a filter reads integers of 64 bits",
					name, v)
			}
			j.env[name] = v.Float()
		default:
			return millrace.Errorf(millrace.ErrBadSample,
				"field %q is no string, number or boolean, so no filter can read it", name)
		}
	}
	return nil
}

// refuses applies one filter to the record that was entered. A nil filter refuses nothing.
func (j *Judge) refuses(f *Filter) (bool, error) {
	if f == nil {
		return false, nil
	}
	out, err := j.machine.Run(f.program, j.env)
	if err != nil {
		return false, j.fail(f, firstLine(err))
	}
	keep, ok := out.(bool)
	if !ok {
		return false, j.fail(f, fmt.Sprintf("it gives %v, want true or false", out))
	}
	return !keep, nil
}

// fail returns the error of a filter. It names the missing fields, the most frequent reason.
func (j *Judge) fail(f *Filter, why string) error {
	var missing []string
	for _, name := range f.fields {
		if j.env[name] == nil {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		why += fmt.Sprintf("; the record has no %s: write `??` and a value behind a field that may be missing",
			strings.Join(missing, ", "))
	}
	return millrace.Errorf(millrace.ErrBadSample, "filter `%s`: %s", f.text, why)
}
