package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"millrace"
	"millrace/app/config"
	"millrace/app/dryrun"
	"millrace/app/exit"
	"millrace/app/report"
	"millrace/app/roles"
	"millrace/app/setup"
	"millrace/app/up"
	"millrace/internal/limits"
	"millrace/sidecar"
)

// Bench is one measurement. Its fields are set before Run or Serve.
type Bench struct {
	Mixture string // path of the mixture file
	Ranks   int
	For     time.Duration // how long to measure; Serve: at most
	RunDir  string        // empty, for Run alone: a temporary directory
	Version string        // of the program
	Err     io.Writer     // warnings, and the line "ready" of Serve
}

// Run measures a run with all its roles, in a directory of its own. progress gets the time that has passed.
func (b *Bench) Run(ctx context.Context, progress func(passed time.Duration)) (_ *Figures, err error) {
	dir := b.RunDir
	if dir == "" {
		if dir, err = os.MkdirTemp("", "millrace-bench-"); err != nil {
			return nil, exit.Failuref("make a directory for the run: %v: name one behind the mixture file", err)
		}
		defer os.RemoveAll(dir)
	} else if _, err := os.Stat(filepath.Join(dir, "journal")); err == nil {
		return nil, exit.Usagef("millrace bench: %s holds a run: name a new directory", dir)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	u := up.Up{Mixture: b.Mixture, Serving: up.Serving{Ranks: b.Ranks}, RunDir: dir, Version: b.Version,
		Out: io.Discard, Err: b.Err}
	var group errgroup.Group
	served := make(chan struct{}) // closed when the roles have left
	group.Go(func() error {
		defer close(served)
		return u.Run(ctx)
	})
	measuring, give := context.WithCancel(ctx)
	go func() { // ends with served, which is closed below at the latest
		<-served
		give()
	}()
	figures, err := Measure(measuring, dir, b.Ranks, b.For, progress)
	stop()
	if failed := group.Wait(); failed != nil {
		return nil, failed
	}
	if errors.Is(err, context.Canceled) {
		return nil, exit.Failuref("bench was interrupted before the time was over")
	}
	if err != nil {
		return nil, exit.Failure(err)
	}
	return figures, nil
}

// Serve serves one step again and again until the trainers have left or the time is over.
func (b *Bench) Serve(ctx context.Context) (*Figures, error) {
	cfg, err := config.Load(b.Mixture)
	if err != nil {
		return nil, err
	}
	part := setup.Alone(cfg, setup.ThisHost(b.Ranks), setup.Measured{})
	if err := errors.Join(cfg.Payload(), setup.CheckSidecarMemory(cfg, part, b.Ranks)); err != nil {
		return nil, err
	}
	free, err := lockForMock(b.RunDir)
	if err != nil {
		return nil, exit.Failure(err)
	}
	defer free()
	opened, err := dryrun.Open(ctx, cfg, dryrun.Options{Measure: true, Logger: roles.NewLogger("bench")})
	if err != nil {
		return nil, report.Problems(b.Err, err)
	}
	defer opened.Close()
	var mock *Mock
	err = opened.Walk(ctx, b.Ranks, func(ctx context.Context, walk *dryrun.Walk) error {
		mock, err = NewMock(ctx, opened, walk, b.Ranks)
		return err
	})
	if err != nil {
		return nil, exit.Failure(err)
	}
	return b.serve(ctx, mock, part.Sidecar.Frames/int64(b.Ranks))
}

// serve serves a mock run. ring is the limit of one rank's ring in bytes.
func (b *Bench) serve(ctx context.Context, mock *Mock, ring int64) (*Figures, error) {
	config := sidecar.Config{
		Dir: b.RunDir, Upstream: mock, Fetcher: mock, RingSize: ring, Log: roles.NewLogger("bench"),
	}
	for rank := range b.Ranks {
		config.Ranks = append(config.Ranks, millrace.Rank(rank))
	}
	config.Ready = func() {
		fmt.Fprintf(b.Err, "ready: mock batches for %d ranks on %s\n", b.Ranks,
			filepath.Join(b.RunDir, "rank-<r>.sock"))
	}
	var meter MockMeter
	config.Observe = meter.Observe
	server, err := sidecar.New(config)
	if err != nil {
		return nil, exit.Failure(err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer time.AfterFunc(b.For, mock.End).Stop()
	go func() { // ends with ctx
		select {
		case <-mock.Gone():
			stop()
		case <-ctx.Done():
		}
	}()
	if err := server.Run(ctx); err != nil {
		return nil, exit.Failure(err)
	}
	return meter.Figures(mock, b.Ranks), nil
}

// lockForMock makes a run directory and locks it as millrace up does. A trainer looks at the lock to learn whether its
// run lives.
func lockForMock(dir string) (free func() error, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make run directory: %w", err)
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open run directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = fmt.Errorf("lock run directory %s: a run uses it: name another directory", dir)
		} else {
			err = limits.Lock("run directory "+dir, err, "name a directory on a local disk")
		}
		return nil, errors.Join(err, f.Close())
	}
	return f.Close, nil
}
