package reshape

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"millrace/app/exit"
	"millrace/app/roles"
	"millrace/app/rundir"
	"millrace/app/supervisor"
	"millrace/internal/limits"
	"millrace/internal/seam"
	"millrace/orchestrator/lease/hosts"
)

const (
	lockName    = "topology.lock"
	askEvery    = 100 * time.Millisecond // of a command that waits for its answer
	applyWithin = time.Minute            // the time limit for etcd and for the start of a sidecar
)

// errPending: another command asks for other ranks now.
var errPending = errors.New("another `millrace topology` of this run directory has not ended")

// Change gives the host of a run other ranks, and the run another topology. It returns when the sidecar serves the new
// ranks. If ctx ends before `up` has answered, the request is withdrawn.
func Change(ctx context.Context, runDir string, r Request) error {
	host := hosts.Host{First: r.First, Ranks: r.Ranks, World: r.World}
	switch {
	case r.Ranks < 1:
		return exit.Usagef("millrace topology: --ranks %d: want the number of this host's ranks, at least 1", r.Ranks)
	case r.TP < 0 || r.CP < 0 || r.PP < 0:
		return exit.Usagef("millrace topology: --tp %d, --cp %d, --pp %d: want 1 or more each, or leave them out", r.TP,
			r.CP, r.PP)
	case host.Validate() != nil:
		return exit.Usagef("millrace topology: %w", host.Validate())
	}
	if err := rundir.Check(runDir); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, r.Patience+applyWithin)
	defer cancel()
	before, running, err := rundir.Roles(runDir)
	if err != nil {
		return exit.Failure(err)
	}
	if !running || !supervisor.IsServed(runDir) {
		return exit.Failuref("no `millrace up` runs on %s: give the ranks to `millrace up` itself", runDir)
	}
	clock := seam.System{}
	serves := func() error {
		if !supervisor.IsServed(runDir) {
			return fmt.Errorf("the `millrace up` of %s has ended: start it again with the ranks that you want", runDir)
		}
		return nil
	}
	if err = ask(ctx, clock, runDir, r, serves); err == nil {
		err = awaitSidecar(ctx, clock, runDir, sidecarOf(before).Pid, serves)
	}
	if errors.Is(err, errPending) {
		err = fmt.Errorf("%w: it waits for trainers to leave, or for etcd. Let it end, or stop it, and call this again",
			err)
	}
	return exit.Failure(err)
}

// ask sends a request to the `up` of a run directory, and returns when it is carried out or refused. If ctx ends
// before, the request is withdrawn; a change that has begun continues. serves returns an error if no `up` serves the
// directory.
func ask(ctx context.Context, clock seam.Clock, runDir string, r Request, serves func() error) error {
	r.ID = rand.Text()
	lock, err := takeLock(runDir)
	if err != nil {
		return fmt.Errorf("ask `millrace up` for other ranks: %w", err)
	}
	defer lock.Close()
	request := filepath.Join(supervisor.RuntimeDir(runDir), requestName)
	if err := write(request, r); err != nil {
		return fmt.Errorf("ask `millrace up` for other ranks: %w", err)
	}
	defer os.Remove(request)
	for {
		var a answer
		if read(filepath.Join(supervisor.RuntimeDir(runDir), answerName), &a) == nil && a.ID == r.ID {
			if a.Refused != "" {
				return errors.New(a.Refused)
			}
			return nil
		}
		if err := serves(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("`millrace up` on %s has not answered: %w", runDir, ctx.Err())
		case <-clock.After(askEvery):
		}
	}
}

// awaitSidecar returns when the next process of the sidecar serves. before is the pid of the last one.
func awaitSidecar(ctx context.Context, clock seam.Clock, runDir string, before int, serves func() error) error {
	for {
		now, err := supervisor.ReadRoles(runDir)
		if s := sidecarOf(now); err == nil && s.Pid != before && s.State == supervisor.Running {
			return nil
		}
		if err := serves(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the sidecar of %s does not serve the new ranks yet: %w", runDir, ctx.Err())
		case <-clock.After(askEvery):
		}
	}
}

func sidecarOf(all []supervisor.Role) supervisor.Role {
	i := slices.IndexFunc(all, func(r supervisor.Role) bool { return r.Role == roles.SidecarRole })
	if i < 0 {
		return supervisor.Role{}
	}
	return all[i]
}

// takeLock returns a file whose lock ends when it is closed. The error is errPending if another process has it.
func takeLock(runDir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(supervisor.RuntimeDir(runDir), lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = errPending
		} else {
			err = limits.Lock(f.Name(), err, "start the run with a --run-dir on a local disk")
		}
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
