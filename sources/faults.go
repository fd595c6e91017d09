package sources

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	"millrace"
)

// Fence runs an act on foreign bytes. It turns a panic into an error of the given class that names the bytes. The class
// is millrace.ErrBadSample while one record is decoded, otherwise millrace.ErrDamaged. No other function of the package
// recovers panics.
func Fence(class error, what func() string, act func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &PanicError{What: what(), Value: fmt.Sprint(p), Stack: debug.Stack(), class: class}
		}
	}()
	return act()
}

// PanicError is a decoder's panic caught by the fence. Stack is for the log, never for the user's screen.
type PanicError struct {
	What  string
	Value string
	Stack []byte
	class error
}

// Error names the bytes and the panic's value.
func (e *PanicError) Error() string {
	return fmt.Sprintf("read %s: decoder failed: %s", e.What, e.Value)
}

// Unwrap returns the error's class.
func (e *PanicError) Unwrap() error { return e.class }

var _ error = (*PanicError)(nil)

// IsDamage reports whether an error is about the bytes of a file. Any other error is the host's: the read is tried
// again, and never quarantines a record.
func IsDamage(err error) bool { return isAny(err, millrace.ErrDamaged, millrace.ErrBadSample) }

func isAny(err error, targets ...error) bool {
	for _, t := range targets {
		if errors.Is(err, t) {
			return true
		}
	}
	return false
}

// LimitError is the reason why a file is not read that may be whole: it passes a fixed limit of its reader. Errors of
// damage wrap it, because a damaged size passes limits, too. Its cure takes the place of a restored file.
type LimitError struct{ What, Cure string }

// Error implements error.
func (e *LimitError) Error() string { return e.What + ": " + e.Cure }

// Limited returns a LimitError.
func Limited(cure, what string, args ...any) error {
	return &LimitError{What: fmt.Sprintf(what, args...), Cure: cure}
}

// Missing is the way in which a record is without a field.
type Missing string

// The ways to be without a field.
const (
	Null   Missing = "null"
	Absent Missing = "absent"
	Empty  Missing = "empty" // a text without a byte; white space is a text
)

// MissingError is the reason of a record without a field that its document needs. The record is not damaged.
type MissingError struct {
	Field string // dotted path
	How   Missing
	Has   string // fields of the record, for people; empty if the record has none
}

// mostNamed is the largest number of fields of a record that an error names.
const mostNamed = 8

// NewMissingError returns the error of a record without a field. has lists the fields that it has, in any order.
func NewMissingError(field string, how Missing, has []string) *MissingError {
	has, more := slices.Sorted(slices.Values(has)), ""
	if n := len(has) - mostNamed; n > 0 {
		has, more = has[:mostNamed], fmt.Sprintf(" and %d more", n)
	}
	return &MissingError{Field: field, How: how, Has: strings.Join(has, ", ") + more}
}

// Error names the field, and the fields that the record has.
func (e *MissingError) Error() string {
	text := fmt.Sprintf("field %q is %s", e.Field, e.How)
	switch {
	case e.How == Absent && e.Has == "":
		return text + "; the record has no fields"
	case e.How == Empty || e.Has == "":
		return text
	}
	return text + "; the record has " + e.Has
}

// Unwrap returns millrace.ErrBadSample.
func (e *MissingError) Unwrap() error { return millrace.ErrBadSample }

var _ error = (*MissingError)(nil)
