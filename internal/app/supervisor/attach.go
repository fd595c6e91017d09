package supervisor

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"millrace"
)

// leaveGrace is how long an orphan may take to return from its work before it is ended.
const leaveGrace = 500 * time.Millisecond

// Life is a child's side of the supervision. A process that no supervisor started has one too; its reports go nowhere.
type Life struct {
	runDir   string
	lifeline *os.File // nil without a supervisor
	reports  *os.File
	lock     *os.File
	exit     func(code int)
}

// Attach takes over the descriptors that the supervisor passed. Call it once, first thing in a role process.
func Attach(runDir string) (*Life, error) {
	l := &Life{runDir: runDir, exit: os.Exit}
	for _, inherited := range []struct {
		env  string
		file **os.File
	}{{lifelineEnv, &l.lifeline}, {reportEnv, &l.reports}, {lockEnv, &l.lock}} {
		text, ok := os.LookupEnv(inherited.env)
		if !ok {
			return l, nil
		}
		f, err := adopt(text, inherited.env == lifelineEnv)
		if err != nil {
			return nil, fmt.Errorf("attach to supervisor: %s=%q: %w", inherited.env, text, err)
		}
		*inherited.file = f
		os.Unsetenv(inherited.env) // not for what this process may start
	}
	// An orphan's stderr is a broken pipe; a last line of log must not end it before it has cleaned up.
	signal.Ignore(syscall.SIGPIPE)
	// Executed as /proc/self/exe the process would be listed as "exe"; a wrong name is no reason to fail.
	_ = os.WriteFile("/proc/self/comm", []byte("millrace"), 0)
	return l, nil
}

// adopt makes an inherited descriptor private to this process and fit for deadlines. What all children share is opened anew: whether
// it blocks belongs to the open file, and the supervisor sets that back for every child that it starts.
func adopt(text string, shared bool) (*os.File, error) {
	fd, err := strconv.Atoi(text)
	if err != nil {
		return nil, err
	}
	if shared {
		own, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("open it anew: %w", err)
		}
		_ = unix.Close(fd)
		return os.NewFile(uintptr(own), "supervisor"), nil
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "supervisor"), nil
}

// Context ends with the parent, with the cause ErrStopped at SIGTERM or SIGINT, and with ErrOrphaned when the supervisor is gone. An
// orphan has leaveGrace to return to its cancel, which then removes the run's runtime files (sockets included: the role must not do it
// itself, they may be a successor's once the lock is released); after that the process is ended where it stands. Call it once.
func (l *Life) Context(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	returned := make(chan struct{})
	var watchers sync.WaitGroup
	watchers.Go(func() {
		select {
		case <-signals:
			cancel(ErrStopped)
		case <-returned:
		}
	})
	if l.lifeline != nil {
		watchers.Go(func() { l.watch(cancel, returned) })
	}
	var once sync.Once
	return ctx, func() {
		once.Do(func() {
			signal.Stop(signals)
			close(returned)
			if l.lifeline != nil {
				_ = l.lifeline.SetReadDeadline(time.Unix(1, 0)) // wakes watch; a pipe takes deadlines
			}
			watchers.Wait()
			cancel(context.Canceled)
		})
	}
}

// watch waits for the end of the lifeline; nothing is ever written to it.
func (l *Life) watch(cancel context.CancelCauseFunc, returned <-chan struct{}) {
	if _, err := io.Copy(io.Discard, l.lifeline); err != nil {
		return // the deadline: the role returned by itself
	}
	cancel(ErrOrphaned)
	select {
	case <-returned:
		_ = cleanRuntime(l.runDir) // nobody is left to tell; the next `up` tries again
	case <-time.After(leaveGrace):
		_ = cleanRuntime(l.runDir)
		l.exit(1)
	}
}

// ReportReady tells the supervisor that this role serves. It may be called again.
func (l *Life) ReportReady() error { return l.report("ready\n") }

// ReportTerm tells the supervisor the term under which this role acts, for `millrace status`.
func (l *Life) ReportTerm(t millrace.Term) error { return l.report(fmt.Sprintf("term %d\n", t)) }

// ReportFenced tells the supervisor that a process of a child is fenced. The supervisor starts a fresh one in its place at once. Only
// the orchestrator's report counts. A report about a process that has died meanwhile has no effect.
func (l *Life) ReportFenced(name string, pid int64) error {
	return l.report(fmt.Sprintf("fenced %s %d\n", name, pid))
}

func (l *Life) report(line string) error {
	if l.reports == nil {
		return nil
	}
	if _, err := io.WriteString(l.reports, line); err != nil {
		return fmt.Errorf("report to supervisor: %w", err)
	}
	return nil
}
