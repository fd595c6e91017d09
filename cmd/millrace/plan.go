package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"millrace"
	"millrace/app/config"
	"millrace/app/dryrun"
	"millrace/app/exit"
	"millrace/app/export"
	"millrace/app/report"
	"millrace/app/roles"
)

// plan is the flags of `millrace plan`.
type plan struct {
	steps, runDir string
	stream        string
	ranks         int
	json, explain bool
	html, file    string // of --html and --to
	from, to      uint64
}

func planCommand() *cobra.Command {
	p := &plan{}
	c := &cobra.Command{
		Use:   "plan MIXTURE|DIR --steps A..B",
		Short: "Print the documents of steps and their places",
		Long: `Print the plans of steps A to B, B excluded: the tokens of each step, and their rank, microbatch and row.

plan computes the plans from the mixture file, as a run would. Of DIR, a run directory, it reads them from the ledger of
the stopped run. If several attempts sealed a step, plan prints the newest.

With --json, one object a line: step, content_digest (equal for any number of ranks), placement_digest, segments.

With --explain, plan prints the cost of each step by the mixture file's model or cost: the overhead over the mean rank,
a lower bound for these documents and the gap to it; fill and stranded places; the steps by which window and carry moved
documents; each source against its target; and a picture of each rank's cost. --html writes a page with plots.`,
		Example: "  millrace plan mixture.yaml --steps 0..100 --ranks 64 --explain --html steps.html\n" +
			"  millrace plan mixture.yaml --steps 0..3 --ranks 8\n  millrace plan runs/a --steps 41200..41201 --json",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 && p.runDir != "" {
				return nil
			}
			return exactArgs(1, "one mixture file or one run directory")(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error { return p.run(c, args) },
	}
	f := c.Flags()
	f.StringVar(&p.steps, "steps", "", "steps A..B, B excluded (required)")
	f.IntVar(&p.ranks, "ranks", 1, "trainer ranks")
	f.StringVar(&p.runDir, "run-dir", "", "the old form of DIR")
	_ = f.MarkHidden("run-dir") // it exists
	streamFlag(f, &p.stream)
	f.BoolVar(&p.json, "json", false, "print one JSON object a step")
	f.BoolVar(&p.explain, "explain", false, "print the cost of each step and its causes, in place of its segments")
	toFlag(c, &p.file)
	f.StringVar(&p.html, "html", "", "with --explain, write a page with plots to this file")
	return c
}

func (p *plan) run(c *cobra.Command, args []string) error {
	if len(args) == 1 && isDir(args[0]) {
		p.runDir = args[0]
	} else if p.runDir != "" {
		oldForm(c, "plan --run-dir DIR", "plan DIR")
	}
	var err error
	if p.from, p.to, err = parseSteps(p.steps); err != nil {
		return exit.Usagef("millrace plan: %w", err)
	}
	if p.ranks < 1 {
		return exit.Usagef("millrace plan: --ranks %d: want at least 1", p.ranks)
	}
	if err := checkTo(c, p.file, "json", "explain"); err != nil {
		return err
	}
	if p.html != "" && !p.explain {
		return exit.Usagef("millrace plan: --html goes with --explain")
	}
	if p.runDir != "" && p.explain {
		return exit.Usagef("millrace plan: --explain computes plans from the mixture file: name it in place of %s",
			p.runDir)
	}
	if p.runDir != "" {
		return p.ofRun(c)
	}
	cfg, err := loadStream(args[0], p.stream)
	if err != nil {
		return err
	}
	if p.explain {
		return p.explainAll(c, cfg, args[0])
	}
	return p.give(c, func(show func(*report.Step) error) error {
		r := p.planned(c)
		r.show = func(_ context.Context, _ *dryrun.Walk, s *dryrun.Step) error {
			return show(report.NewStep(s.Plan, r.manifests, nil))
		}
		return r.run(c, cfg)
	})
}

// planned returns the steps of the flags.
func (p *plan) planned(c *cobra.Command) *planned {
	return &planned{from: p.from, to: p.to, ranks: p.ranks, ended: func(steps uint64) error {
		if steps <= p.from {
			return exit.Usagef("millrace plan: --steps %s: the run has %d steps", p.steps, steps)
		}
		fmt.Fprintf(c.ErrOrStderr(), "the run ends after step %d\n", steps-1)
		return nil
	}}
}

// explainAll prints the cost of each step with its causes, and writes the page with plots.
func (p *plan) explainAll(c *cobra.Command, cfg *config.Config, mixture string) error {
	pages := &report.Plots{Mixture: mixture, Ranks: p.ranks}
	err := page(c, func(w *bufio.Writer) error {
		r := p.planned(c)
		r.show = func(_ context.Context, walk *dryrun.Walk, _ *dryrun.Step) error {
			return p.printExplained(w, walk, pages)
		}
		return r.run(c, cfg)
	})
	if err != nil || p.html == "" {
		return err
	}
	return exit.Failure(pages.Write(p.html))
}

// give passes a way to show a step to fill: it prints the step, or writes its rows to the file of --to.
func (p *plan) give(c *cobra.Command, fill func(show func(*report.Step) error) error) error {
	if p.file == "" {
		return page(c, func(w *bufio.Writer) error {
			return fill(func(step *report.Step) error { return p.print(w, step) })
		})
	}
	return export.Write(p.file, func(add func(report.PlanRow) error) error {
		return fill(func(step *report.Step) error {
			for _, row := range step.Rows() {
				if err := add(row); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// ofRun prints the plans that a stopped run sealed.
func (p *plan) ofRun(c *cobra.Command) error {
	run, err := runAt(p.runDir, p.stream)
	if err != nil {
		return err
	}
	return p.give(c, func(show func(*report.Step) error) error { return run.Plans(p.from, p.to, show) })
}

// planned is a range of steps that are planned and shown.
type planned struct {
	from, to  uint64 // steps, to excluded
	ranks     int
	manifests []*millrace.Manifest // of the sources; set during run
	show      func(context.Context, *dryrun.Walk, *dryrun.Step) error
	ended     func(steps uint64) error // gets the number of steps of the run if it is less than to
}

func (r *planned) run(c *cobra.Command, cfg *config.Config) error {
	if _, err := cfg.Topology(r.ranks); err != nil {
		return err
	}
	roles.LimitMemory(toolMemory)
	m := newMeter(c)
	defer m.clear()
	opened, err := dryrun.Open(
		c.Context(),
		cfg,
		dryrun.Options{
			Logger:   roles.NewLogger(c.Name()),
			Measure:  true,
			Looked:   func(source string, done, total int64) { m.show("look at the files of "+source, done, total) },
			Progress: func(source string, done, total int64) { m.show("index "+source, done, total) },
		},
	)
	if opened != nil {
		defer opened.Close()
	}
	if err != nil {
		return report.Problems(c.ErrOrStderr(), err)
	}
	r.manifests = opened.Manifests()
	return opened.Walk(c.Context(), r.ranks, func(ctx context.Context, w *dryrun.Walk) error {
		for step := uint64(0); step < r.to; step++ {
			s, err := w.Next(ctx)
			switch {
			case err != nil:
				return exit.Failure(err)
			case s == nil:
				return r.ended(step)
			case step < r.from:
				m.show("plan", int64(step), int64(r.from))
				continue
			}
			m.clear()
			if err := r.show(ctx, w, s); err != nil {
				return err
			}
		}
		return nil
	})
}

// parseSteps reads A..B.
func parseSteps(text string) (from, to uint64, err error) {
	a, b, ok := strings.Cut(text, "..")
	if text == "" {
		return 0, 0, errors.New("--steps is missing: write it as A..B, such as --steps 0..10 (10 excluded)")
	}
	from, errA := strconv.ParseUint(a, 10, 53)
	to, errB := strconv.ParseUint(b, 10, 53)
	if !ok || errA != nil || errB != nil {
		return 0, 0, fmt.Errorf("--steps %q: want A..B with whole numbers, such as 0..10 (10 excluded)", text)
	}
	if from >= to {
		return 0, 0, fmt.Errorf(
			"--steps %s holds no step: the second number is excluded and has to be larger than the first", text,
		)
	}
	return from, to, nil
}

// print writes one step. It flushes, so that a reader that closed its end stops the command.
func (p *plan) print(w *bufio.Writer, step *report.Step) error {
	write := step.Print
	if p.json {
		write = func(w io.Writer) error { return report.Encode(w, step) }
	}
	if err := write(w); err != nil {
		return err
	}
	return w.Flush()
}

// printExplained writes the cost of the newest step with its causes.
func (p *plan) printExplained(w *bufio.Writer, walk *dryrun.Walk, pages *report.Plots) error {
	e := walk.Explain()
	if p.html != "" {
		pages.Add(e, walk.Lengths())
	}
	if p.json {
		if err := report.Encode(w, e); err != nil {
			return err
		}
		return w.Flush()
	}
	if err := report.PrintExplanation(w, e); err != nil {
		return err
	}
	return w.Flush()
}
