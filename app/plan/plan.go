// Package plan plans the steps of a mixture file without a run, for `millrace plan` and `millrace preview`.
package plan

import (
	"context"
	"fmt"
	"io"

	"millrace"
	"millrace/app/config"
	"millrace/app/dryrun"
	"millrace/app/exit"
	"millrace/app/report"
	"millrace/app/roles"
)

// Steps is a range of steps to plan.
type Steps struct {
	From, To uint64 // To is excluded
	Ranks    int
	Name     string // of the command, for its log
	// Progress shows the progress of work before the first step. Done and total count files, bytes or steps.
	Progress func(what string, done, total int64)
	Err      io.Writer // for all reasons of a failure but the last
}

// Visit gets a step and the walk that planned it. manifests are those of the sources.
type Visit func(ctx context.Context, walk *dryrun.Walk, manifests []*millrace.Manifest, step *dryrun.Step) error

// Walk plans the steps of a stream and passes each to visit, in order. ended gets the number of steps of the run if it
// is less than To.
func (s *Steps) Walk(ctx context.Context, c *config.Config, visit Visit, ended func(steps uint64) error) error {
	if _, err := c.Topology(s.Ranks); err != nil {
		return err
	}
	opened, err := dryrun.Open(ctx, c, dryrun.Options{
		Logger:   roles.NewLogger(s.Name),
		Measure:  true,
		Looked:   func(source string, done, total int64) { s.Progress("look at the files of "+source, done, total) },
		Progress: func(source string, done, total int64) { s.Progress("index "+source, done, total) },
	})
	if opened != nil {
		defer opened.Close()
	}
	if err != nil {
		return report.Problems(s.Err, err)
	}
	manifests := opened.Manifests()
	return opened.Walk(ctx, s.Ranks, func(ctx context.Context, w *dryrun.Walk) error {
		for step := uint64(0); step < s.To; step++ {
			next, err := w.Next(ctx)
			switch {
			case err != nil:
				return exit.Failure(err)
			case next == nil:
				return ended(step)
			case step < s.From:
				s.Progress("plan", int64(step), int64(s.From))
				continue
			}
			if err := visit(ctx, w, manifests, next); err != nil {
				return err
			}
		}
		return nil
	})
}

// Show passes the plan of each step of a mixture file's stream to show, in order.
func (s *Steps) Show(ctx context.Context, mixture, stream string, show func(*report.Step) error) error {
	return s.load(ctx, mixture, stream,
		func(_ context.Context, _ *dryrun.Walk, manifests []*millrace.Manifest, step *dryrun.Step) error {
			return show(report.NewStep(step.Plan, manifests, nil))
		})
}

// Explain passes the cost of each step, with its causes, to show. It then writes a page with plots to the file html,
// unless that is empty.
func (s *Steps) Explain(
	ctx context.Context, mixture, stream, html string, show func(*dryrun.Explained) error,
) error {
	pages := &report.Plots{Mixture: mixture, Ranks: s.Ranks}
	err := s.load(ctx, mixture, stream,
		func(_ context.Context, walk *dryrun.Walk, _ []*millrace.Manifest, _ *dryrun.Step) error {
			e := walk.Explain()
			if html != "" {
				pages.Add(e, walk.Lengths())
			}
			return show(e)
		})
	if err != nil || html == "" {
		return err
	}
	return exit.Failure(pages.Write(html))
}

// load is Walk for a stream of a mixture file.
func (s *Steps) load(ctx context.Context, mixture, stream string, visit Visit) error {
	c, err := config.LoadStream(mixture, stream)
	if err != nil {
		return err
	}
	return s.Walk(ctx, c, visit, func(steps uint64) error {
		if steps <= s.From {
			return exit.Usagef("millrace %s: --steps %d..%d: the run has %d steps", s.Name, s.From, s.To, steps)
		}
		_, err := fmt.Fprintf(s.Err, "the run ends after step %d\n", steps-1)
		return err
	})
}
