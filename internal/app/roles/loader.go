package roles

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"millrace"
	"millrace/internal/activity"
	"millrace/internal/app/rundir"
	"millrace/internal/app/setup"
	"millrace/internal/app/supervisor"
	"millrace/internal/arena"
	"millrace/internal/heartbeat"
	"millrace/internal/seam"
	"millrace/sources"
	"millrace/sources/loader"
)

// Load runs a loader, or a shadow that stands by for loaders, until the run ends.
func (p Process) Load(ctx context.Context, standby bool) error {
	r, ctx, stop, err := p.start(ctx)
	if err != nil {
		return err
	}
	defer stop()
	return r.load(ctx, standby)
}

func (r *role) load(ctx context.Context, standby bool) error {
	encoding, err := setup.Tokenizer(r.cfg)
	if err != nil {
		return asFailure(err)
	}
	runtimeDir := supervisor.RuntimeDir(r.RunDir)
	if err := removeLeftovers(runtimeDir, r.Name); err != nil {
		return err
	}
	beat, err := heartbeat.Files{}.Create(heartbeat.Path(runtimeDir, r.Name, os.Getpid()))
	if err != nil {
		return err
	}
	division := setup.Division(r.cfg)
	LimitMemory(division.Heap)
	collectAsRole(standby)
	runtime.GOMAXPROCS(division.Procs)
	kept := setup.NewKept(division.Decoders, division.Kept)
	if encoding != nil {
		encoding.LimitEncoders(division.Encoders)
	}
	address := rundir.Socket(r.RunDir, fmt.Sprintf("%s-%d", r.Name, os.Getpid()))
	tokens, err := setup.TokenCache(r.cfg, r.log)
	if err != nil { // up found the directory good; without it, the files have every document
		r.log.Warn("the token cache is not used", "err", err)
	}
	ctx, leave := handingOver(ctx)
	l := loader.New(loader.Config{
		Name: r.Name, Address: address, Orchestrator: rundir.Socket(r.RunDir, "orchestrator"), Standby: standby,
		Beat: beat, Leave: leave,
		Version: speaks(r.Version),
		Spec: func(name string) (sources.Spec, error) {
			src, ok := r.cfg.Source(name)
			if !ok {
				return sources.Spec{}, millrace.Errorf(millrace.ErrInvalid, "source %s is not in the mixture", name)
			}
			return setup.SourceSpec(r.cfg, src, encoding, kept)
		},
		// The collector would run without end if it had to keep the facts about many files inside the payload's room.
		Facts:     func(bytes int64) { LimitMemory(division.Heap + bytes) },
		OpenFiles: int(r.cfg.Limits.OpenFiles), Cache: tokens, Memory: division.Payload, Parallel: division.Decoders,
		Arenas: arena.Host{}, Net: seam.UnixNet{}, Clock: seam.System{}, Fail: r.fail, Events: r.events, Log: r.log,
		Meter: activity.New(time.Now),
		Ready: r.ready, Term: r.term,
		Role: func(standby bool) {
			collectAsRole(standby)
			if standby {
				title(ShadowRole)
			} else {
				title(LoaderRole)
			}
		},
	})
	err = l.Run(ctx)
	// Both file names hold this process's pid: no successor's files are removed.
	if e := os.Remove(address); !errors.Is(e, os.ErrNotExist) {
		err = errors.Join(err, e)
	}
	return asFailure(errors.Join(err, beat.Close()))
}

// handingOver returns a context that ends with ctx unless the supervisor asked this process to stop. In that case leave
// is closed instead, and the loader ends by itself after it has handed over its stripes.
func handingOver(ctx context.Context) (_ context.Context, leave <-chan struct{}) {
	inner, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	asked := make(chan struct{})
	context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); errors.Is(cause, supervisor.ErrStopped) {
			close(asked)
		} else {
			cancel(cause)
		}
	})
	return inner, asked
}

// removeLeftovers removes the files that dead processes of a name left in the runtime directory.
func removeLeftovers(dir, name string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("look for files of dead processes: %w", err)
	}
	for _, e := range entries {
		rest, ours := strings.CutPrefix(e.Name(), name+"-")
		pid, err := strconv.Atoi(strings.TrimSuffix(rest, filepath.Ext(rest)))
		if !ours || err != nil || unix.Kill(pid, 0) != unix.ESRCH {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove a file of a dead process: %w", err)
		}
	}
	return nil
}
