package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"millrace"
	"millrace/orchestrator/placer"
)

// The causes that end a child's [Life.Context].
var (
	// ErrStopped: this process is asked to leave (SIGTERM). The run continues without it.
	ErrStopped = errors.New("stopped")
	// ErrEnding: the whole run ends (SIGINT), so no process takes over.
	ErrEnding = errors.New("the run ends")
	// ErrOrphaned: the supervisor is gone.
	ErrOrphaned = errors.New("the supervisor is gone")
)

// leaveGrace is the time that an orphan has to return from its work. Then Life ends the process.
const leaveGrace = 500 * time.Millisecond

// Life is the child's side of the supervision. In a process without a supervisor, its reports have no effect.
type Life struct {
	runDir   string
	lifeline *os.File // nil without a supervisor
	reports  *os.File
	lock     *os.File
	exit     func(code int)
}

// Attach takes over the descriptors that the supervisor passed. Call it once, at the beginning of a role process.
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
		os.Unsetenv(inherited.env) // processes that this one starts do not get them
	}
	// An orphan's stderr is a broken pipe. A log line must not end the process before it cleans up.
	signal.Ignore(syscall.SIGPIPE)
	// A process started from /proc/self/exe is listed as "exe". A wrong name is no reason to fail.
	_ = os.WriteFile("/proc/self/comm", []byte("millrace"), 0)
	return l, nil
}

// adopt makes an inherited descriptor private to this process and usable with deadlines. It opens a shared one anew:
// the blocking mode belongs to the open file, and the supervisor resets it for every child that it starts.
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

// Context returns a context that ends with its parent. It also ends at SIGTERM with the cause ErrStopped, at SIGINT
// with the cause ErrEnding, and when the supervisor is gone, with the cause ErrOrphaned. An orphan must call the cancel
// function within leaveGrace; otherwise Life ends the process. In both cases Life removes an orphan's runtime files,
// sockets included. A role must not remove them itself: once the lock is released, they may belong to a successor. Call
// Context once.
func (l *Life) Context(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	returned := make(chan struct{})
	var watchers sync.WaitGroup
	watchers.Go(func() {
		select {
		case s := <-signals:
			if s == syscall.SIGINT {
				cancel(ErrEnding)
			} else {
				cancel(ErrStopped)
			}
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
				_ = l.lifeline.SetReadDeadline(time.Unix(1, 0)) // wakes watch
			}
			watchers.Wait()
			cancel(context.Canceled)
		})
	}
}

// watch waits for the end of the lifeline, to which no process ever writes.
func (l *Life) watch(cancel context.CancelCauseFunc, returned <-chan struct{}) {
	if _, err := io.Copy(io.Discard, l.lifeline); err != nil {
		return // the deadline: the role returned by itself
	}
	cancel(ErrOrphaned)
	select {
	case <-returned:
		_ = cleanRuntime(l.runDir) // the next `up` tries again
	case <-time.After(leaveGrace):
		_ = cleanRuntime(l.runDir)
		l.exit(1)
	}
}

// ReportReady reports to the supervisor that this role serves. It may be called again.
func (l *Life) ReportReady() error { return l.report("ready\n") }

// ReportTerm reports the term under which this role acts, for `millrace status`.
func (l *Life) ReportTerm(t millrace.Term) error { return l.report(fmt.Sprintf("term %d\n", t)) }

// ReportTrainers reports the number of trainers that this role serves. At SIGTERM, the supervisor waits for them.
func (l *Life) ReportTrainers(n int) error { return l.report(fmt.Sprintf("trainers %d\n", n)) }

// ReportFenced reports to the supervisor that a process of a child is fenced. The supervisor starts a fresh one in its
// place at once. Only the orchestrator's report counts. A report about a process that has died meanwhile has no effect.
func (l *Life) ReportFenced(name string, pid int64) error {
	return l.report(fmt.Sprintf("fenced %s %d\n", name, pid))
}

// ReportPlace asks the supervisor for other numbers of processes. ReadPlaced returns its answer to the id, which has no
// spaces. Only the orchestrator's request counts.
func (l *Life) ReportPlace(id string, goal placer.Desired) error {
	text, err := json.Marshal(goal)
	if err != nil {
		return fmt.Errorf("encode a goal: %w", err)
	}
	return l.report(fmt.Sprintf("place %s %s\n", id, text))
}

// ReportLacks reports to the supervisor the thing that this role waits for; "": none. The supervisor logs it, and
// `millrace status` shows it. A role that does not wait reports "" once: an earlier process may have waited.
func (l *Life) ReportLacks(what string) error {
	return l.report("lacks " + strings.ReplaceAll(what, "\n", " ") + "\n")
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
