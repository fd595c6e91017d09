package sources

import (
	"fmt"
	"runtime/debug"

	"millrace"
)

// Fence runs one act on foreign bytes and turns a panic in it into an error of the given class (millrace.ErrBadSample
// inside one record's decoding, else millrace.ErrDamaged) that names what was being read. It is the only recover of
// the room.
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

// Error names what was read and what the panic said.
func (e *PanicError) Error() string {
	return fmt.Sprintf("read %s: decoder failed: %s", e.What, e.Value)
}

// Unwrap returns the error's class.
func (e *PanicError) Unwrap() error { return e.class }

var _ error = (*PanicError)(nil)

// IsDamage tells whether an error is about the bytes of a file. Any other error is the host's: it is retried and
// never quarantines a record.
func IsDamage(err error) bool { return errorsIsAny(err, millrace.ErrDamaged, millrace.ErrBadSample) }
