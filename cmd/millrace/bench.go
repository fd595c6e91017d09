package main

import (
	"bufio"
	"context"
	"time"

	"github.com/spf13/cobra"

	"millrace/app/bench"
	"millrace/app/exit"
	"millrace/app/report"
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
		Use:   "bench MIXTURE [DIR]",
		Short: "Measure the batches that this host can deliver",
		Long: `Run the mixture on this host with trainers that take batches and do nothing else. bench prints tokens and
batches a second, the CPU of each role, the limit, and the step time from which on a trainer does not wait for data.

--mock serves the first step of the mixture again and again to your own trainer, on the sockets in DIR. It ends
when your trainers have left, or after --seconds. The difference between your trainer's speed with --mock and with
millrace up is the loader's.

bench reads the real files. It fills the index directory and the token cache of the mixture file, if there are any.`,
		Example: "  millrace bench mixture.yaml --ranks 8\n" +
			"  millrace bench mixture.yaml runs/mock --ranks 8 --mock",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 2 {
				return nil
			}
			return exactArgs(1, "one mixture file, and a directory for the run if you want to name it")(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			if b.mixture = args[0]; b.runDir != "" {
				oldForm(c, "bench MIXTURE --run-dir DIR", "bench MIXTURE DIR")
			} else if len(args) == 2 {
				b.runDir = args[1]
			}
			return b.run(c)
		},
	}
	f := c.Flags()
	f.IntVar(&b.ranks, "ranks", 1, "trainer ranks on this host")
	f.Float64Var(&b.seconds, "seconds", 60, "how long to measure")
	f.StringVar(&b.runDir, "run-dir", "", "the old form of DIR")
	_ = f.MarkHidden("run-dir") // it exists
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
		return exit.Usagef("millrace bench: --mock needs DIR, the run directory: your trainer connects to its sockets")
	}
	ctx, stop := untilStopped(c)
	defer stop()
	long := time.Duration(b.seconds * float64(time.Second))
	of := bench.Bench{Mixture: b.mixture, Ranks: b.ranks, For: long, RunDir: b.runDir, Version: programVersion(),
		Err: c.ErrOrStderr()}
	figures, err := b.measure(ctx, c, &of)
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

// measure runs the benchmark and shows its progress.
func (b *benchmark) measure(ctx context.Context, c *cobra.Command, of *bench.Bench) (*bench.Figures, error) {
	if b.mock {
		return of.Serve(ctx)
	}
	m := newMeter(c)
	defer m.clear()
	return of.Run(ctx, func(passed time.Duration) {
		m.show("measure", int64(min(passed, of.For)/time.Millisecond), int64(of.For/time.Millisecond))
	})
}
