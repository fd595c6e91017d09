package millrace

import (
	"errors"
	"fmt"
)

// Marks of errors that cross packages. errors.Is finds them, and internal/wire maps them to gRPC codes. An error
// carries its mark by [Errorf] or [Mark]; the text of the mark is not part of the error's text.
var (
	// ErrFenced: the caller's term or attempt is older than one already seen; it must stop acting.
	ErrFenced = errors.New("fenced by a newer term")
	// ErrDamaged: a file is unreadable as a whole (footer, index, compressed stream, count).
	ErrDamaged = errors.New("damaged file")
	// ErrBadSample: one record cannot be decoded; it is quarantined or masked.
	ErrBadSample = errors.New("bad sample")
	// ErrMismatch: two things that must be equal differ (a digest, a manifest, an identity).
	ErrMismatch = errors.New("mismatch")
	// ErrInvalid: wrong usage or an invalid mixture file.
	ErrInvalid = errors.New("invalid")
)

// Errorf formats an error as fmt.Errorf does, %w included, and marks it.
func Errorf(mark error, format string, args ...any) error {
	return Mark(fmt.Errorf(format, args...), mark)
}

// Mark returns an error with the text and the chain of err, for which errors.Is(…, mark) is true too. Nil stays nil.
func Mark(err, mark error) error {
	if err == nil {
		return nil
	}
	return &marked{err, mark}
}

// marked is an error and its mark. Only the error is printed.
type marked struct{ err, mark error }

func (m *marked) Error() string   { return m.err.Error() }
func (m *marked) Unwrap() []error { return []error{m.err, m.mark} }
