package supervisor

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"millrace"
)

// Child is one role process: this binary again with other arguments.
type Child struct {
	Role string   // loader, shadow, orchestrator, constructor or sidecar
	Name string   // unique, e.g. loader-0
	Args []string // after argv[0]
	Env  []string // added to the supervisor's environment
	// HandsOver is set for a child whose work others take over when the supervisor is stopped: it is asked to leave
	// with SIGTERM then, and not with SIGINT, which says that the run ends.
	HandsOver bool
}

// Exit describes the end of a child's process.
type Exit struct {
	Code     int            // exit status; -1 after a signal
	Signal   syscall.Signal // 0 if it exited
	LastLine string         // its last line on stderr; after a crash, the line that names the panic
	Crash    string         // file that holds the stack of a crash, else ""
	Starved  bool           // it got no thread from the host
	Limit    string         // the limit that ended it, with its cure; "": none did
}

// isFromOutside reports whether another process caused the exit.
func (e Exit) isFromOutside() bool { return e.Signal == syscall.SIGKILL || e.Signal == syscall.SIGTERM }

// String returns "exit status 1" or "SIGKILL", and the limit that ended the process.
func (e Exit) String() string {
	text := fmt.Sprintf("exit status %d", e.Code)
	if e.Signal != 0 {
		text = unix.SignalName(e.Signal)
	}
	if e.Limit != "" {
		text += ": " + e.Limit
	}
	return text
}

// Verdict is the consequence of an exit for the run.
type Verdict int

// The verdicts. A child that dies while the run is stopping is never judged.
const (
	Restart Verdict = iota // restart it; after too many restarts the run has failed
	Again                  // it was asked to leave: restart it, without limit
	Await                  // it waits for the thing in its last line: restart it with growing delays, without limit
	Finish                 // the run is complete
	Fail                   // the run has failed; the child's last line is the reason
)

// State is the state of a child.
type State string

// The states of a child. Between death and restart it is starting, with pid 0.
const (
	Starting State = "starting"
	Running  State = "running" // it has reported ready
	Stopping State = "stopping"
)

// Role describes a child for `millrace status`.
type Role struct {
	Role     string        `json:"role"`
	Name     string        `json:"name"`
	Pid      int           `json:"pid"` // 0 between death and restart
	State    State         `json:"state"`
	Term     millrace.Term `json:"term"`
	Restarts int           `json:"restarts"`
	Lacks    string        `json:"lacks,omitempty"` // the missing thing that it waits for, such as room on a disk
	Host     string        `json:"host,omitempty"`  // its name; empty: the run has one host
}

// Result is the end of a run.
type Result int

// The results.
const (
	Stopped  Result = iota // by a signal or its context
	Finished               // complete: a child's verdict was Finish
	Failed                 // the error has the reason
)

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

// Over is the cause of a context of [Run] that ends because the run has ended on another host. Err says why it failed;
// nil: it is complete.
type Over struct{ Err error }

// Error implements error.
func (o *Over) Error() string {
	if o.Err == nil {
		return "the run is complete"
	}
	return o.Err.Error()
}
