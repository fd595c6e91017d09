package supervisor

import (
	"errors"
	"fmt"
)

// The causes that end a child's [Life.Context].
var (
	// ErrStopped: this process is asked to leave (SIGTERM). The run goes on without it.
	ErrStopped = errors.New("stopped")
	// ErrEnding: the whole run ends (SIGINT), so nobody takes over.
	ErrEnding = errors.New("the run ends")
	// ErrOrphaned: the supervisor is gone.
	ErrOrphaned = errors.New("the supervisor is gone")
)

// ErrInUse: another `millrace up` holds the run directory.
var ErrInUse = errors.New("run directory in use")

// inUseError is an ErrInUse that names the directory and its holder.
type inUseError struct{ dir, holder string }

func (e *inUseError) Error() string {
	return fmt.Sprintf("run directory %s is in use by another `millrace up`%s: "+
		"stop that one, or name another --run-dir", e.dir, e.holder)
}

func (e *inUseError) Is(target error) bool { return target == ErrInUse }

// leftoverError is an ErrInUse by processes that a kill does not end.
type leftoverError struct {
	dir  string
	pids []int
}

func (e *leftoverError) Error() string {
	if len(e.pids) == 0 {
		return fmt.Sprintf("run directory %s is locked by a process that is not visible here: "+
			"stop the process that uses it, or name another --run-dir", e.dir)
	}
	return fmt.Sprintf("run directory %s is held by processes of a killed `millrace up` that a kill does not end: %v: "+
		"thaw them if they are frozen, or name another --run-dir", e.dir, e.pids)
}

func (e *leftoverError) Is(target error) bool { return target == ErrInUse }

// FailedError is the failure of a run by one of its children.
type FailedError struct {
	Child   Child
	Exit    Exit
	Verdict string // why the child is not restarted; "" if its exit is the run's failure
}

// Error returns the child's last line if its exit is the run's failure, and a sentence about the child if it died too
// often.
func (e *FailedError) Error() string {
	if e.Verdict == "" && e.Exit.LastLine != "" && e.Exit.Crash == "" {
		return e.Exit.LastLine
	}
	text := e.Child.Name
	if e.Verdict != "" {
		text += " " + e.Verdict + ", at last with " + e.Exit.String()
	} else {
		text += " ended with " + e.Exit.String()
	}
	if e.Exit.LastLine != "" {
		text += ": " + e.Exit.LastLine
	}
	if e.Exit.Crash != "" {
		text += fmt.Sprintf(" (stack in %s)", e.Exit.Crash)
	}
	return text
}
