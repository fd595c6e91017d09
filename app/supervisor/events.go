package supervisor

import (
	"syscall"

	"millrace"
	"millrace/orchestrator/placer"
)

// An event is something that happened to a child or to the run. The index names a child, the pid one of its processes.
type event interface{}

type (
	evBegin       struct{}                 // start everything
	evStarted     struct{ child, pid int } // its process runs
	evStartFailed struct {                 // it could not be executed
		child int
		err   error
	}
	evReady struct{ child, pid int }
	evTerm  struct {
		child, pid int
		term       millrace.Term
	}
	evLacks struct {
		child, pid int
		what       string
	}
	evFenced struct { // child reports that a process is fenced
		child int
		name  string
		pid   int
	}
	evPlace struct { // child asks for other numbers of processes
		child, pid int
		id         string
		goal       placer.Desired
	}
	evChange struct{ child Child } // the child of its role gets other arguments
	evExited struct {
		child, pid int
		exit       Exit
	}
	evTrainers struct{ child, pid, count int } // the number of trainers that child serves
	evPreempt  struct{}                        // stop in order when the trainers have left, or their grace is over
	evStop     struct{}                        // stop in order
	evOver     struct {                        // the run has ended elsewhere: stop in order
		err error // why it failed; nil: it is complete
	}
	evLeave struct{} // stop in order; another supervisor may continue, and trainers wait for it
	evKill  struct{} // stop at once
	evTick  struct{} // the machine's deadline has passed
)

// An action is a task for the shell. The shell carries out actions in order.
type action interface{}

type (
	acStart  struct{ child int } // answered by evStarted or evStartFailed before any other event; not during a stop
	acSignal struct {
		pid    int
		signal syscall.Signal
	}
	acPlaced   Placed                  // answer a request for other numbers of processes
	acNotice   struct{ line string }   // print a line for the user
	acAllReady struct{}                // every child is running, for the first time
	acEnding   struct{ reason string } // the run failed or was stopped; comes before any signal to a child
)
