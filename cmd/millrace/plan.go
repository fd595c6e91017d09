package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"millrace/app/exit"
	"millrace/app/export"
	"millrace/app/plan"
	"millrace/app/report"
)

// planFlags are the flags of `millrace plan`.
type planFlags struct {
	steps, runDir string
	stream        string
	ranks         int
	json, explain bool
	html, file    string // of --html and --to
	from, to      uint64
}

func planCommand() *cobra.Command {
	p := &planFlags{}
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

func (p *planFlags) run(c *cobra.Command, args []string) error {
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
	m := newMeter(c)
	defer m.clear()
	limitMemory()
	steps := &plan.Steps{From: p.from, To: p.to, Ranks: p.ranks, Name: c.Name(), Progress: m.show, Err: m}
	if !p.explain {
		return p.give(c, m, func(show func(*report.Step) error) error {
			return steps.Show(c.Context(), args[0], p.stream, show)
		})
	}
	return page(c, func(w *bufio.Writer) error {
		show := lines(w, p.json, report.PrintExplanation)
		return steps.Explain(c.Context(), args[0], p.stream, p.html, cleared(m, show))
	})
}

// give passes a way to show a step to fill: it prints the step, or writes its rows to the file of --to.
func (p *planFlags) give(c *cobra.Command, m *meter, fill func(show func(*report.Step) error) error) error {
	if p.file == "" {
		return page(c, func(w *bufio.Writer) error {
			return fill(cleared(m, lines(w, p.json, (*report.Step).Print)))
		})
	}
	return export.Write(p.file, func(add func(report.PlanRow) error) error {
		return fill(cleared(m, func(step *report.Step) error {
			for _, row := range step.Rows() {
				if err := add(row); err != nil {
					return err
				}
			}
			return nil
		}))
	})
}

// ofRun prints the plans that a stopped run sealed.
func (p *planFlags) ofRun(c *cobra.Command) error {
	run, err := runAt(p.runDir, p.stream)
	if err != nil {
		return err
	}
	return p.give(c, newMeter(c), func(show func(*report.Step) error) error { return run.Plans(p.from, p.to, show) })
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
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
