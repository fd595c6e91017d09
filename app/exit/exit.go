// Package exit gives every error of a command its exit status.
package exit

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"millrace"
	"millrace/internal/limits"
)

// The exit statuses that outside tools rely on.
const (
	Done   = 0
	Failed = 1
	Usage  = 2
)

// The exit statuses that a role reports to its supervisor.
const (
	Asked  = 3 // the role was asked to leave
	NoRoom = 4 // the disk of the journal is full
	Disk   = 5 // a write to the journal failed: only a fresh process can read back the disk's content
	Fenced = 6 // the lease was lost: another process may decide now
)

// Usagef returns an error of wrong usage of the command line. Its status is Usage, unless it wraps (%w) a failure of
// this host or one of its devices.
func Usagef(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	if !isOfUser(err) {
		return &status{Failed, err}
	}
	return &status{Usage, err}
}

// Failuref returns an error of a running command. Its status is Failed, even if it wraps an error with another status.
func Failuref(format string, args ...any) error {
	return &status{Failed, fmt.Errorf(format, args...)}
}

// Failure gives an error the status Failed, even if it wraps an error with another status. Nil stays nil.
func Failure(err error) error { return With(Failed, err) }

// With gives an error a status, and names the limit behind it. Nil stays nil.
func With(code int, err error) error {
	if err == nil {
		return nil
	}
	return &status{code, limits.Explain(err)}
}

// Report writes the error that ended a command, and the limit behind it, and returns the exit status. The reason of a
// failure is the last line.
func Report(w io.Writer, err error) int {
	err = limits.Explain(err)
	if err != nil && err.Error() != "" {
		// A name from a damaged file may hold any bytes.
		fmt.Fprintln(w, strings.ToValidUTF8(strings.TrimRight(err.Error(), "\n"), "\ufffd"))
	}
	return Status(err)
}

// Silent ends a process with a status and prints nothing.
func Silent(code int) error { return &status{code, errors.New("")} }

// Status returns the exit status of an error. The outermost given status counts; without one, an invalid argument or
// mixture file is Usage and everything else Failed. A file that cannot be read because its device or this host failed
// is no wrong usage.
func Status(err error) int {
	var given *status
	switch {
	case err == nil:
		return Done
	case errors.As(err, &given):
		return given.code
	case errors.Is(err, millrace.ErrInvalid) && isOfUser(err):
		return Usage
	}
	return Failed
}

// isOfUser reports whether other arguments avoid an error: the kernel was not asked, or it refused the path.
func isOfUser(err error) bool {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return true
	}
	switch errno {
	case syscall.ENOENT, syscall.ENOTDIR, syscall.EISDIR, syscall.ENAMETOOLONG, syscall.ELOOP, syscall.EACCES,
		syscall.EPERM, syscall.EROFS, syscall.EINVAL:
		return true
	}
	return false
}

type status struct {
	code int
	err  error
}

// Error returns the text of the error. There is no Unwrap, so a wrapped error does not decide the status.
func (s *status) Error() string { return s.err.Error() }
