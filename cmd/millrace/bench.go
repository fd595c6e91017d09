package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"millrace"
	"millrace/app/bench"
	"millrace/app/config"
	"millrace/app/dryrun"
	"millrace/app/exit"
	"millrace/app/report"
	"millrace/app/roles"
	"millrace/app/setup"
	"millrace/internal/limits"
	"millrace/sidecar"
)

// benchmark is the bench command with its flags.
type benchmark struct {
	mixture string
	ranks   int
	seconds float64
	runDir  string
	mock    bool
	json    bool
}

func benchCommand() *cobra.Command {
	var b benchmark
	c := &cobra.Command{
		Use:   "bench MIXTURE",
		Short: "Measure the batches that this host can deliver",
		Long: `Run the mixture on this host with trainers that take batches and do nothing else. bench prints tokens and
batches a second, the CPU of each role, the limit, and the step time from which on a trainer does not wait for data.

--mock serves the first step of the mixture again and again to your own trainer, on the sockets of --run-dir. It ends
when your trainers have left, or after --seconds. The difference between your trainer's speed with --mock and with
millrace up is the loader's.

bench reads the real files. It fills the index directory and the token cache of the mixture file, if there are any.`,
		Example: "  millrace bench mixture.yaml --ranks 8\n" +
			"  millrace bench mixture.yaml --ranks 8 --mock --run-dir runs/mock",
		Args: exactArgs(1, "one mixture file"),
		RunE: func(c *cobra.Command, args []string) error {
			b.mixture = args[0]
			return b.run(c)
		},
	}
	f := c.Flags()
	f.IntVar(&b.ranks, "ranks", 1, "trainer ranks on this host")
	f.Float64Var(&b.seconds, "seconds", 60, "how long to measure")
	f.StringVar(&b.runDir, "run-dir", "", "directory of the run (default: a temporary one)")
	f.BoolVar(&b.mock, "mock", false, "serve one step again and again to your own trainers")
	f.BoolVar(&b.json, "json", false, "print one JSON object")
	return c
}

func (b *benchmark) run(c *cobra.Command) error {
	switch {
	case b.ranks < 1:
		return exit.Usagef("millrace bench: --ranks %d: want at least 1", b.ranks)
	case !(b.seconds >= 1 && b.seconds <= 1e6):
		return exit.Usagef("millrace bench: --seconds %v: want at least 1", b.seconds)
	case b.mock && b.runDir == "":
		return exit.Usagef("millrace bench: --mock needs --run-dir: your trainer connects to its sockets")
	}
	ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	measure := b.real
	if b.mock {
		measure = b.serveMock
	}
	figures, err := measure(ctx, c)
	if err != nil {
		return err
	}
	figures.Mixture = b.mixture
	return page(c, func(w *bufio.Writer) error {
		if b.json {
			return report.Encode(w, figures)
		}
		return figures.Print(w)
	})
}

// real measures a run with all its roles, in a directory of its own.
func (b *benchmark) real(ctx context.Context, c *cobra.Command) (_ *bench.Figures, err error) {
	dir := b.runDir
	if dir == "" {
		if dir, err = os.MkdirTemp("", "millrace-bench-"); err != nil {
			return nil, exit.Failuref("make a directory for the run: %v: name one with --run-dir", err)
		}
		defer os.RemoveAll(dir)
	} else if _, err := os.Stat(filepath.Join(dir, "journal")); err == nil {
		return nil, exit.Usagef("millrace bench: --run-dir %s holds a run: name a new directory", dir)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	inner := &cobra.Command{}
	inner.SetContext(ctx)
	inner.SetOut(io.Discard)
	inner.SetErr(c.ErrOrStderr())
	u := up{mixture: b.mixture, serving: serving{ranks: b.ranks}, runDir: dir}
	var group errgroup.Group
	served := make(chan struct{}) // closed when the roles have left
	group.Go(func() error {
		defer close(served)
		return u.run(inner)
	})
	measuring, give := context.WithCancel(ctx)
	go func() { // ends with served, which is closed below at the latest
		<-served
		give()
	}()
	m := newMeter(c)
	long := time.Duration(b.seconds * float64(time.Second))
	figures, err := bench.Measure(measuring, dir, b.ranks, long, func(passed time.Duration) {
		m.show("measure", int64(min(passed, long)/time.Millisecond), int64(long/time.Millisecond))
	})
	m.clear()
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

// serveMock serves one step again and again until the trainers have left or the time is over.
func (b *benchmark) serveMock(ctx context.Context, c *cobra.Command) (*bench.Figures, error) {
	cfg, err := config.Load(b.mixture)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(cfg.Payload(), setup.CheckSidecarMemory(cfg, b.ranks)); err != nil {
		return nil, err
	}
	free, err := lockForMock(b.runDir)
	if err != nil {
		return nil, exit.Failure(err)
	}
	defer free()
	opened, err := dryrun.Open(ctx, cfg, dryrun.Options{Measure: true, Logger: roles.NewLogger("bench")})
	if err != nil {
		return nil, firstProblem(c, err)
	}
	defer opened.Close()
	var mock *bench.Mock
	err = opened.Walk(ctx, b.ranks, func(ctx context.Context, walk *dryrun.Walk) error {
		mock, err = bench.NewMock(ctx, opened, walk, b.ranks)
		return err
	})
	if err != nil {
		return nil, exit.Failure(err)
	}
	return b.serve(ctx, c, mock, int64(cfg.Limits.SidecarMemory)/2/int64(b.ranks))
}

// serve serves a mock run. ring is the limit of one rank's ring in bytes.
func (b *benchmark) serve(
	ctx context.Context, c *cobra.Command, mock *bench.Mock, ring int64,
) (*bench.Figures, error) {
	config := sidecar.Config{
		Dir: b.runDir, Upstream: mock, Fetcher: mock, RingSize: ring, Log: roles.NewLogger("bench"),
	}
	for rank := range b.ranks {
		config.Ranks = append(config.Ranks, millrace.Rank(rank))
	}
	config.Ready = func() {
		fmt.Fprintf(c.ErrOrStderr(), "ready: mock batches for %d ranks on %s\n", b.ranks,
			filepath.Join(b.runDir, "rank-<r>.sock"))
	}
	var meter bench.MockMeter
	config.Observe = meter.Observe
	server, err := sidecar.New(config)
	if err != nil {
		return nil, exit.Failure(err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer time.AfterFunc(time.Duration(b.seconds*float64(time.Second)), mock.End).Stop()
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
	return meter.Figures(mock, b.ranks), nil
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
			err = fmt.Errorf("lock run directory %s: a run uses it: name another --run-dir", dir)
		} else {
			err = limits.Lock("run directory "+dir, err, "name a --run-dir on a local disk")
		}
		return nil, errors.Join(err, f.Close())
	}
	return f.Close, nil
}
