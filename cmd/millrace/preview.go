package main

import (
	"bufio"
	"context"

	"github.com/spf13/cobra"

	"millrace/app/dryrun"
	"millrace/app/exit"
	batch "millrace/app/preview"
	"millrace/app/report"
)

// preview is the flags of `millrace preview`.
type preview struct {
	show   batch.Preview
	stream string
	step   int64
	json   bool
}

func previewCommand() *cobra.Command {
	p := &preview{}
	c := &cobra.Command{
		Use:   "preview MIXTURE --step K --rank R",
		Short: "Print a batch as text",
		Long: `Print the batch of a trainer rank in a step as text: its rows, the documents in them and their text.

preview shortens long texts in the middle; --full prints them whole. It prints the tokens of sources that hold tokens.
Text that is not trained on stands in ⟦brackets⟧.`,
		Example: "  millrace preview mixture.yaml --step 0 --rank 0\n  millrace preview mixture.yaml --step 100 " +
			"--rank 3 --ranks 8 --microbatch 0 --json",
		Args: exactArgs(1, "one mixture file"),
		RunE: func(c *cobra.Command, args []string) error { return p.run(c, args[0]) },
	}
	f := c.Flags()
	f.Int64Var(&p.step, "step", 0, "step, from 0")
	f.IntVar(&p.show.Rank, "rank", 0, "trainer rank, from 0; ranks count along tp, cp, dp, pp")
	f.IntVar(&p.show.Ranks, "ranks", 1, "trainer ranks")
	f.IntVar(&p.show.Microbatch, "microbatch", -1, "one microbatch, from 0 (default: all of the step)")
	streamFlag(f, &p.stream)
	f.BoolVar(&p.show.Full, "full", false, "print whole texts")
	f.BoolVar(&p.json, "json", false, "print one JSON object")
	return c
}

func (p *preview) run(c *cobra.Command, mixture string) error {
	usage := func(format string, args ...any) error {
		return exit.Usagef("millrace preview: "+format, args...)
	}
	switch {
	case p.step < 0 || p.step > 1<<53:
		return usage("--step %d: want a step, from 0", p.step)
	case p.show.Ranks < 1:
		return usage("--ranks %d: want at least 1", p.show.Ranks)
	}
	var err error
	if p.show.Config, err = loadStream(mixture, p.stream); err != nil {
		return err
	}
	if err = p.show.Config.Payload(); err != nil {
		return err
	}
	if _, err = p.show.Config.Topology(p.show.Ranks); err != nil {
		return err
	}
	if p.show.Rank < 0 || p.show.Rank >= p.show.Ranks {
		return usage("--rank %d: with --ranks %d the ranks are 0 to %d", p.show.Rank, p.show.Ranks, p.show.Ranks-1)
	}
	if p.show.Microbatch < -1 {
		return usage("--microbatch %d: want a microbatch, from 0", p.show.Microbatch)
	}
	return page(c, func(w *bufio.Writer) error {
		r := &planned{from: uint64(p.step), to: uint64(p.step) + 1, ranks: p.show.Ranks}
		r.show = func(ctx context.Context, walk *dryrun.Walk, s *dryrun.Step) error {
			if n := s.Plan.Microbatches; p.show.Microbatch >= int(n) {
				return usage("--microbatch %d: each rank has 0 to %d in step %d", p.show.Microbatch, n-1, p.step)
			}
			out, err := p.show.Build(ctx, walk, r.manifests, s)
			if err != nil {
				return exit.Failure(err)
			}
			if p.json {
				return report.Encode(w, out)
			}
			p.show.Print(w, out)
			return nil
		}
		r.ended = func(steps uint64) error { return usage("--step %d: the run has %d steps", p.step, steps) }
		return r.run(c, p.show.Config)
	})
}
