package sources

import (
	"errors"
	"fmt"
	"runtime/debug"

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
