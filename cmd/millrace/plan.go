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
	"millrace/checkpoint"
	"millrace/internal/app/config"
	"millrace/internal/app/dryrun"
	"millrace/internal/app/setup"
	"millrace/internal/wire"
	"millrace/orchestrator/facts"
	"millrace/orchestrator/ledger"
)

// plan is the flags of `millrace plan`.
type plan struct {
	steps, runDir string
	ranks         int
	json, explain bool
	html          string
	from, to      uint64
}

func planCommand() *cobra.Command {
	p := &plan{}
	c := &cobra.Command{
		Use:   "plan MIXTURE --steps A..B",
		Short: "Print what steps hold and where it goes",
		Long: `Print the plans of steps A to B, B excluded: which tokens of which documents each step holds, and on which rank, microbatch and row
they are. Plans are made anew from the mixture file, as a run would make them; with --run-dir they are read from the ledger of a run,
which has to be stopped, and MIXTURE may be left out. Where a run was begun anew from an earlier step, the newest attempt counts.

With --json, one object a line: step, content_digest (equal for any number of ranks), placement_digest, segments.

With --explain, why each step costs what it costs, by the mixture file's model or cost: the overhead over the mean rank, the least that the
documents leave (the bound) and the gap, fill, stranded places, how far window and carry moved documents, every source against its target up
to that step, and a picture of each rank's cost. --json has the same numbers; --html writes them with plots into one page.`,
		Example: "  millrace plan mixture.yaml --steps 0..100 --ranks 64 --explain --html steps.html\n  millrace plan mixture.yaml --steps 0..3 --ranks 8\n  millrace plan --run-dir runs/a --steps 41200..41201 --json",
		RunE:    func(c *cobra.Command, args []string) error { return p.run(c, args) },
	}
	f := c.Flags()
	f.StringVar(&p.steps, "steps", "", "steps A..B, B excluded (required)")
	f.IntVar(&p.ranks, "ranks", 1, "trainer ranks")
	f.StringVar(&p.runDir, "run-dir", "", "read the ledger of this run")
	f.BoolVar(&p.json, "json", false, "print one JSON object a step")
	f.BoolVar(&p.explain, "explain", false, "say why each step costs what it costs, in place of where its segments are")
	f.StringVar(&p.html, "html", "", "with --explain, write a page with plots to this file")
	return c
}

func (p *plan) run(c *cobra.Command, args []string) error {
	var err error
	if p.from, p.to, err = parseSteps(p.steps); err != nil {
		return &usageError{fmt.Errorf("millrace plan: %w", err)}
	}
	if p.ranks < 1 {
		return &usageError{fmt.Errorf("millrace plan: --ranks %d: want at least 1", p.ranks)}
	}
	if p.html != "" && !p.explain {
		return &usageError{errors.New("millrace plan: --html goes with --explain")}
	}
	if p.runDir != "" && p.explain {
		return &usageError{errors.New("millrace plan: --explain plans anew from the mixture file: leave --run-dir out")}
	}
	if p.runDir != "" && len(args) == 0 {
		return page(c, func(w *bufio.Writer) error { return p.fromLedger(w) })
	}
	if err := exactArgs(1, "one mixture file")(c, args); err != nil {
		return err
	}
	cfg, err := config.Load(args[0])
	if err != nil {
		return err
	}
	if p.runDir != "" {
		return page(c, func(w *bufio.Writer) error { return p.fromLedger(w) })
	}
	pages := &explainedPages{mixture: args[0], ranks: p.ranks}
	err = page(c, func(w *bufio.Writer) error {
		r := &planned{from: p.from, to: p.to, ranks: p.ranks}
		r.show = func(_ context.Context, walk *dryrun.Walk, s *dryrun.Step) error {
			if p.explain {
				return p.printExplained(w, walk, pages)
			}
			return p.print(w, s.Plan, r.manifests)
		}
		r.ended = func(steps uint64) error {
			if steps <= p.from {
				return &usageError{fmt.Errorf("millrace plan: --steps %s: the run has %d steps", p.steps, steps)}
			}
			fmt.Fprintf(c.ErrOrStderr(), "the run ends after step %d\n", steps-1)
			return nil
		}
		return r.run(c, cfg)
	})
	if err != nil || p.html == "" {
		return err
	}
	return pages.write(p.html)
}

// planned is a stretch of a run that is planned and shown.
type planned struct {
	from, to  uint64 // steps, to excluded
	ranks     int
	manifests []*millrace.Manifest // of the sources, while it runs
	show      func(context.Context, *dryrun.Walk, *dryrun.Step) error
	ended     func(steps uint64) error // hears how many steps the run has, where that is fewer than to
}

func (r *planned) run(c *cobra.Command, cfg *config.Config) error {
	if _, err := cfg.Topology(r.ranks); err != nil {
		return err
	}
	memoryLimit(toolMemory)
	m := newMeter(c)
	defer m.clear()
	opened, err := dryrun.Open(c.Context(), cfg, dryrun.Options{Logger: newLogger(c.Name()), Measure: true, Progress: func(source string, done, total int64) { m.show("index "+source, done, total) }})
	if opened != nil {
		defer opened.Close()
	}
	if err != nil {
		return firstProblem(c, err)
	}
	r.manifests = opened.Manifests()
	return opened.Walk(c.Context(), r.ranks, func(ctx context.Context, w *dryrun.Walk) error {
		for step := uint64(0); step < r.to; step++ {
			s, err := w.Next(ctx)
			switch {
			case err != nil:
				return &failure{err.Error()}
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
		return 0, 0, errors.New("--steps is missing: say which, such as --steps 0..10 (10 excluded)")
	}
	from, errA := strconv.ParseUint(a, 10, 53)
	to, errB := strconv.ParseUint(b, 10, 53)
	if !ok || errA != nil || errB != nil {
		return 0, 0, fmt.Errorf("--steps %q: want A..B with whole numbers, such as 0..10 (10 excluded)", text)
	}
	if from >= to {
		return 0, 0, fmt.Errorf("--steps %s holds no step: the second number is excluded and has to be larger than the first", text)
	}
	return from, to, nil
}

// fromLedger prints the plans that a stopped run sealed.
func (p *plan) fromLedger(w *bufio.Writer) error {
	store, err := openJournal(p.runDir)
	if err != nil {
		return err
	}
	defer store.Close()
	state, _, err := facts.ReadCounters(store, millrace.Train)
	if err != nil {
		return err
	}
	var ms []*millrace.Manifest
	for _, name := range sortedNames(state.Manifests) {
		ms = append(ms, wire.ManifestFromProto(state.Manifests[name]))
	}
	for step := p.from; step < p.to; step++ {
		found, err := newestPlan(store, uint32(state.Attempt.GetAttempt()), step)
		if err != nil {
			return &failure{fmt.Sprintf("run directory %s: %v", p.runDir, err)}
		}
		changes := mixViews(facts.ChangesAt(state.Mixed, sortedNames(state.Manifests), uint32(found.Attempt), step))
		if err := p.print(w, found, ms, changes...); err != nil {
			return err
		}
	}
	return nil
}

// newestPlan finds the plan of a step in the newest attempt that sealed it.
func newestPlan(store *checkpoint.Store, attempt uint32, step uint64) (*millrace.Plan, error) {
	for ; attempt > 0; attempt-- {
		key := checkpoint.StepKey{Stream: string(millrace.Train), Attempt: attempt, Step: step}
		m, kept, err := ledger.ReadPlan(store, key)
		if err != nil {
			return nil, err
		}
		if kept {
			return wire.PlanFromProto(m)
		}
		if _, sealed, err := store.Entry(key); err != nil {
			return nil, err
		} else if sealed {
			return nil, fmt.Errorf("the plan of step %d was sealed and is not kept any more: leave --run-dir out to make it anew from the mixture file", step)
		}
	}
	return nil, fmt.Errorf("no plan of step %d was sealed", step)
}

// planLine and segmentLine are what scripts read: their names and meanings stay.
type planLine struct {
	Step      uint64        `json:"step"`
	Content   string        `json:"content_digest"`
	Placement string        `json:"placement_digest"`
	Segments  []segmentLine `json:"segments"`
	Changes   []mixView     `json:"changes,omitempty"` // of the mixture, that a run made with this step
}

type segmentLine struct {
	Source     string `json:"source"`
	ID         string `json:"id"`
	Epoch      uint32 `json:"epoch"`
	Ordinal    uint64 `json:"ordinal"`
	Offset     uint32 `json:"offset"`
	Length     uint32 `json:"length"`
	Rank       uint32 `json:"rank"`
	Microbatch uint32 `json:"microbatch"`
	Row        uint32 `json:"row"`
	Start      uint32 `json:"start"`
}

func newSegmentLine(a *millrace.Assignment, ms []*millrace.Manifest) segmentLine {
	s := segmentLine{Epoch: uint32(a.Epoch), Ordinal: uint64(a.Ordinal), ID: a.ID.String(), Offset: a.Offset, Length: a.Length,
		Rank: uint32(a.Rank), Microbatch: a.Microbatch, Row: a.Row, Start: a.Start}
	if int(a.Source) < len(ms) {
		s.Source, s.ID = setup.Names(ms)[a.Source], ms[a.Source].SampleName(a.ID)
	}
	return s
}

// print writes one step; a reader that is gone ends the command.
func (p *plan) print(w *bufio.Writer, of *millrace.Plan, ms []*millrace.Manifest, changes ...mixView) error {
	line := planLine{Changes: changes, Step: uint64(of.Step), Content: of.Content.String(), Placement: of.Placement.String(), Segments: make([]segmentLine, len(of.Assignments))}
	for i := range of.Assignments {
		line.Segments[i] = newSegmentLine(&of.Assignments[i], ms)
	}
	if p.json {
		if err := encode(w, &line); err != nil {
			return err
		}
		return w.Flush()
	}
	if err := printPlan(w, &line); err != nil {
		return err
	}
	return w.Flush()
}

func printPlan(w io.Writer, line *planLine) error {
	tokens := uint64(0)
	rows := []string{row("RANK", "MICRO", "ROW", "START", "LENGTH", "OFFSET", "SOURCE", "ID", "EPOCH", "ORDINAL")}
	for _, s := range line.Segments {
		tokens += uint64(s.Length)
		rows = append(rows, row(s.Rank, s.Microbatch, s.Row, s.Start, s.Length, s.Offset, s.Source, s.ID, s.Epoch, s.Ordinal))
	}
	fmt.Fprintf(w, "step %d: %d segments, %s tokens, content %s, placement %s\n", line.Step, len(line.Segments), count(tokens), line.Content, line.Placement)
	printChanges(w, line.Changes)
	return table(w, append(rows, "")...)
}
