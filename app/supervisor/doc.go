// Package supervisor runs the roles of one host as child processes of one binary. It restarts children that die, stops
// all of them in order, and leaves no process and no socket behind.
//
// A pure state machine decides: it takes an event and returns actions. [Run] is the shell around it. [Attach] is the
// child's side. Parent and child share three descriptors:
//
//	3  lifeline   read end of a pipe. Only the supervisor has the write end, so end of file means that the
//	              supervisor is gone.
//	4  reports    the child writes "ready", "term N", "lacks THING" and, if it is the orchestrator, "fenced NAME
//	              PID" and "place ID GOAL", one per line
//	5  lock       the open, flocked run directory. It stays locked until the last child has left, so an orphan
//	              that cleans up never removes files of a successor.
//
// The supervisor does not use the kernel's parent-death signal. That signal follows the death of a thread, not of the
// process, and it would arrive before the child could clean up. A stopped child ends, too: the kernel sends SIGHUP and
// SIGCONT to a newly orphaned process group with stopped members.
//
// A child reports the thing that it waits for. The supervisor prints when a wait begins and ends, because the process
// that hears of its end may be a later one.
//
// The orchestrator may ask for other numbers of processes (orchestrator/placer). The file placed.json in the runtime
// directory has the answer. A process that is no longer wanted gets SIGTERM, so it hands over, and is not restarted. It
// has a minute to leave.
//
// A process that the orchestrator has fenced is replaced at once, even if it still exists. It has a minute to leave. A
// child that is killed from outside, or asked to leave, is restarted without limit. A child that dies again and again
// by its own fault ends the run.
//
// Invariants:
//
//  1. A child has its own process group, so Ctrl-C on a terminal reaches only the supervisor.
//  2. Every child is reaped before Run returns.
//  3. The directory `run` in the run directory exists only while the lock is held.
//
// Each file uses only later ones:
//
//	run.go       Run: processes, signals and time become events; actions are carried out
//	attach.go    Attach, Life: the child's side
//	lock.go      the lock of the run directory, and the children of a killed `up` that still hold it
//	rundir.go    files in the run directory
//	machine.go   machine: the decisions about all children
//	placing.go   other numbers of processes
//	replaced.go  fenced processes that still exist
//	stop.go      the order in which a stop asks and kills
//	process.go   one process of a child
//	events.go    events and actions
//	lines.go     the output of children, line by line; crash files
//	child.go     Child, Exit, Verdict, State, Role, Result, FailedError
//	policy.go    when a child is restarted
package supervisor
