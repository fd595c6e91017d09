// Package supervisor runs the roles of one host as child processes of one binary: it restarts what dies, stops all in order, and
// leaves nothing behind.
//
// What to do is decided by a pure state machine (machine.go, policy.go, stop.go: event in, actions out); [Run] is the shell around
// it. [Attach] is the child's side. Parent and child share three descriptors:
//
//	3  lifeline   read end of a pipe whose only write end is the supervisor's: end of file means that it is gone, however it went
//	4  reports    the child writes "ready", "term N" and, if it is the orchestrator, "fenced NAME PID", a line each
//	5  lock       the open, flocked run directory: it stays locked until the last child has left, so an orphan that cleans up can
//	              never hit the files of a successor
//
// The parent-death signal is not used as well: it follows the death of a thread, not of the process, and it would arrive together
// with the end of the lifeline, before the child could clean up. A stopped child is no gap either: the kernel sends a newly orphaned
// process group with stopped members SIGHUP and SIGCONT.
//
// A process that the orchestrator has fenced is replaced at once, while it may still be there: stopped, or long in dying. It gets a minute
// to leave by itself. A child that is killed from outside, or asked to leave, is started again without end; one that dies of its own
// fault again and again ends the run.
//
// Invariants: a child belongs to its own process group, so Ctrl-C on a terminal reaches the supervisor alone; every child is reaped
// before Run returns; the directory `run` in the run directory exists only while the lock is held.
package supervisor
