package sources

import (
	"errors"
	"maps"
	"slices"
)

// LackError is the error of a file that has no column for a field.
type LackError struct {
	Field string
	Names []string // of the file's columns
	Err   error    // wraps millrace.ErrInvalid
}

// Error implements error.
func (e *LackError) Error() string { return e.Err.Error() }

// Unwrap returns the error of the file.
func (e *LackError) Unwrap() error { return e.Err }

// Missing returns the error of a record of the file.
func (e *LackError) Missing() *MissingError { return NewMissingError(e.Field, Absent, e.Names) }

// Value returns the value of Record.Others for the field.
func (e *LackError) Value(isNeeded bool) any {
	if isNeeded {
		return e.Missing()
	}
	return nil
}

// Lack takes the error of a column. If it is a *LackError of a field that a file may lack, Lack returns that, else the
// error.
func (f Field) Lack(err error) (*LackError, error) {
	var lack *LackError
	if errors.As(err, &lack) && slices.Contains(f.MayLack, lack.Field) {
		return lack, nil
	}
	return nil, err
}

// Lacks are the fields that a file lacks.
type Lacks []*LackError

// Note adds a field, unless it is nil.
func (l *Lacks) Note(lack *LackError) {
	if lack != nil {
		*l = append(*l, lack)
	}
}

// Lacking is the ability of shards whose files have columns.
type Lacking interface {
	// Lacks returns the fields that the file lacks. Each is among Field.MayLack.
	Lacks() Lacks
}

// lacksOf returns the fields that an open shard lacks.
func lacksOf(s Shard) Lacks {
	if l := s.Abilities().Lacks; l != nil {
		return l.Lacks()
	}
	return nil
}

// lackedBy has the fields that some shards of a source lack, with the number of these shards.
type lackedBy map[string]*lacked

type lacked struct {
	first  *LackError
	shards int
}

// note adds the fields that one more shard lacks.
func (l lackedBy) note(lacks Lacks) {
	for i, e := range lacks {
		if slices.ContainsFunc(lacks[:i], func(other *LackError) bool { return other.Field == e.Field }) {
			continue
		}
		if l[e.Field] == nil {
			l[e.Field] = &lacked{first: e}
		}
		l[e.Field].shards++
	}
}

// check returns the error of a field that all shards lack.
func (l lackedBy) check(shards int) error {
	for _, field := range slices.Sorted(maps.Keys(l)) {
		if x := l[field]; x.shards >= shards {
			return x.first
		}
	}
	return nil
}
