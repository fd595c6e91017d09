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
}

// Exit is how a child's process ended.
type Exit struct {
	Code     int            // exit status; -1 where a signal ended it
	Signal   syscall.Signal // 0 where it exited
	LastLine string         // its last line on stderr; of a crash, the line that names the panic
	Crash    string         // file that holds the stack of a crash, else ""
}

// outside tells a death that something else inflicted from one of the child's own making.
func (e Exit) outside() bool { return e.Signal == syscall.SIGKILL || e.Signal == syscall.SIGTERM }

// String says how it ended, as "exit status 1" or "SIGKILL".
func (e Exit) String() string {
	if e.Signal != 0 {
		return unix.SignalName(e.Signal)
	}
	return fmt.Sprintf("exit status %d", e.Code)
}

// Verdict is what an exit means for the run.
type Verdict int

// The verdicts. A child that dies while the run is stopping is never judged.
const (
	Restart Verdict = iota // start it again; where that happens too often, the run has failed
	Again                  // it left since it was asked to: start it again, without end
	Await                  // what it needs is not there for now, as its last line says: start it again, later and later, without end
	Finish                 // the run is complete
	Fail                   // the run has failed; the child's last line is the reason
)

// State is where a child stands.
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
}

// Result is how a run ended.
type Result int

// The results.
const (
	Stopped  Result = iota // by a signal or its context
	Finished               // complete: a child's verdict was Finish
	Failed                 // the error says why
)
