package dryrun

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sync/errgroup"

	"millrace"
	"millrace/app/setup"
	"millrace/constructors"
	"millrace/internal/tokenid"
	"millrace/orchestrator/offers"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/progress"
	"millrace/orchestrator/planner/strategy"
	"millrace/sources/read/budget"
	"millrace/sources/read/feed"
	"millrace/sources/read/filter"
	"millrace/sources/read/order"
	"millrace/text/tokenize"
)

// Step is one planned step.
type Step = strategy.Planned

// Walk plans the steps of a run from 0 on. It has one owner and is not safe for concurrent use.
type Walk struct {
	opened   *Opened
	strategy *strategy.Strategy
	topology millrace.Topology
	shapes   *constructors.Set
	plans    *strategy.Plans
	queues   offers.Queues
	feeds    []*feed.Feed
	wants    []millrace.Ordinal
	last     *Step // the newest; its samples can still be fetched
	prefix   *prefix
	over     planner.Outcome
	found    []Found
	dry      []*millrace.Step // the step in which each source ended
	begins   []*millrace.Step // by stage: the first step
	stale    []*millrace.Step // the step in which its pass after Fresh began
}

// Found describes the records of a source's first pass that a walk has seen, and its bad records.
type Found struct {
	Records uint64   // offered of the first pass, each with its first piece
	Tokens  uint64   // of these, without those that the source's own filter refuses
	Refused uint64   // of these, by the source's own filter
	Missing uint64   // of these, left out because a field is missing
	TooLong uint64   // of these, longer than the source allows
	Labels  uint64   // of the first pass, so far offered; trained or not
	Trained uint64   // of these labels, in the loss
	Rejects []Reject // in ordinal order
}

// Reject is a record that a run would quarantine.
type Reject struct {
	millrace.Quarantine
	Sample  millrace.SampleID
	Ordinal millrace.Ordinal
}

// Walk plans for that many ranks and passes the walk to visit. The feeds read during visit, and have ended when Walk
// returns.
func (o *Opened) Walk(ctx context.Context, ranks int, visit func(ctx context.Context, w *Walk) error) error {
	w, err := o.newWalk(ranks)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	// A feed that fails also fails its readers, so its own error adds nothing.
	var group errgroup.Group
	for _, f := range w.feeds {
		group.Go(func() error { return f.Run(ctx) })
	}
	err = visit(ctx, w)
	stop()
	_ = group.Wait()
	return err
}

func (o *Opened) newWalk(ranks int) (*Walk, error) {
	c := o.Config
	topology, err := c.Topology(ranks)
	if err != nil {
		return nil, err
	}
	strategy, err := setup.Strategy(c, o.Facts, topology)
	if err != nil {
		return nil, err
	}
	spec := &strategy.Mix
	if len(o.Sources) != len(spec.Sources) {
		return nil, fmt.Errorf("plan: %d of %d sources are open", len(o.Sources), len(spec.Sources))
	}
	w := &Walk{
		opened:   o,
		strategy: strategy,
		topology: topology,
		prefix:   newPrefix(spec),
		shapes:   constructors.NewSet(c.Shapes(), c.PadMultiple),
		wants: make(
			[]millrace.Ordinal, len(o.Sources),
		),
		found:  make([]Found, len(o.Sources)),
		dry:    make([]*millrace.Step, len(o.Sources)),
		stale:  make([]*millrace.Step, len(o.Sources)),
		begins: make([]*millrace.Step, 1+len(spec.Stages)),
	}
	if w.plans, err = strategy.Plans(topology, progress.New(len(spec.Sources))); err != nil {
		return nil, err
	}
	budget := budget.New(o.memory)
	parallel := max(1, runtime.GOMAXPROCS(0)/len(o.Sources))
	for _, s := range o.Sources {
		w.queues = append(w.queues, offers.NewQueue(s.Name(), 1))
		w.feeds = append(
			w.feeds, feed.New(s, feed.Position{}, order.Stripe{}, feed.Config{Budget: budget, Parallel: parallel}),
		)
	}
	return w, nil
}

// Next plans the next step. It returns nil after the last step. The samples of the previous step can no longer be
// fetched.
func (w *Walk) Next(ctx context.Context) (*Step, error) {
	if w.last != nil {
		for i, f := range w.feeds {
			below := w.last.After.Floor(i)
			w.queues[i].Release(below)
			f.Release(below)
		}
	}
	for {
		step, outcome, err := w.plans.Next(w.queues)
		switch {
		case err != nil:
			return nil, w.queues.Explain(err)
		case outcome.Kind == planner.Waiting:
			if err := w.wait(ctx, outcome.Source, outcome.Ordinal); err != nil {
				return nil, err
			}
			continue
		case outcome.Kind == planner.Finished:
			w.over = outcome
			return nil, nil
		}
		sel := step.Selection
		if sel.Last {
			w.over = outcome
		}
		if w.begins[sel.Stage] == nil {
			w.begins[sel.Stage] = &sel.Step
		}
		for i := range w.dry {
			if w.dry[i] == nil && sel.After.Sources[i].Finished {
				w.dry[i] = &sel.Step
			}
			if w.stale[i] == nil && sel.After.Sources[i].Epoch >= Fresh {
				w.stale[i] = &sel.Step
			}
		}
		w.prefix.add(sel)
		w.last = &step
		return w.last, nil
	}
}

// Found returns the known facts of each source.
func (w *Walk) Found() []Found { return w.found }

// Sample reads the first n records of every source, so that sources that are drawn late or never also have an estimate.
func (w *Walk) Sample(ctx context.Context, n int) error {
	for i, q := range w.queues {
		for int(q.Next()) < n {
			if _, a := w.queues.Peek(i, q.Next()); a == planner.Ended {
				break
			}
			if err := w.wait(ctx, i, millrace.Ordinal(n-1)); err != nil {
				return err
			}
		}
	}
	return nil
}

// wait takes the next offers of a source when a plan needs one of its ordinals.
func (w *Walk) wait(ctx context.Context, source int, ordinal millrace.Ordinal) error {
	q, f := w.queues[source], w.feeds[source]
	w.wants[source] = max(w.wants[source], q.Demand(ordinal, len(w.queues)))
	f.Want(w.wants[source])
	b, err := f.Next(ctx)
	if err != nil {
		return err
	}
	w.note(source, &b)
	return q.Add(batch(&b))
}

func (w *Walk) note(source int, b *feed.Batch) {
	found := &w.found[source]
	for i := range b.Offers {
		o := &b.Offers[i]
		if labels := w.labels(source, &o.SampleMeta); o.Epoch == 0 && labels > 0 {
			found.Labels += uint64(labels)
			found.Trained += uint64(labels - o.Untrained)
		}
		if o.Epoch > 0 || o.SampleMeta.Offset > 0 { // a later piece of a document that was counted
			continue
		}
		found.Records++
		bits := o.SampleMeta.Refused
		if bits&filter.TooLong != 0 {
			found.TooLong++
		}
		switch {
		case bits&filter.Skipped != 0:
			found.Missing++
		case bits&filter.Own != 0:
			found.Refused++
		default:
			found.Tokens += uint64(o.Lengths.Tokens)
		}
		if o.Quarantine != nil {
			found.Rejects = append(found.Rejects, Reject{*o.Quarantine, o.SampleMeta.ID, o.Ordinal})
		}
	}
}

// labels returns the labels of an ordinal, trained or not; 0 if the source's own filter refuses it.
func (w *Walk) labels(source int, o *millrace.SampleMeta) uint32 {
	held, piece := o.Lengths.Tokens-min(o.Offset, o.Lengths.Tokens), w.opened.Sources[source].PieceTokens()
	switch {
	case held == 0 || o.Refused&filter.Own != 0:
		return 0
	case piece > 0 && held > piece:
		return piece // the last one is the next piece's first token
	}
	return held - 1
}

// batch converts the offers of a feed for the queue.
func batch(b *feed.Batch) offers.Batch {
	out := offers.Batch{
		Metas:      make([]millrace.SampleMeta, len(b.Offers)),
		SeekPoints: b.SeekPoints,
		Ended:      b.End,
		End:        b.EndOrdinal,
	}
	for i := range b.Offers {
		out.Metas[i] = b.Offers[i].SampleMeta
		if q := b.Offers[i].Quarantine; q != nil {
			if out.Rejects == nil {
				out.Rejects = map[millrace.Ordinal]millrace.Quarantine{}
			}
			out.Rejects[b.Offers[i].Ordinal] = *q
		}
		if runs := b.Offers[i].Runs; runs != nil {
			if out.Runs == nil {
				out.Runs = map[millrace.Ordinal]tokenid.Runs{}
			}
			out.Runs[b.Offers[i].Ordinal] = runs
		}
	}
	return out
}

// Faults returns the planned samples that turned out bad when Fetch or Build read them.
func Faults(err error) []millrace.Quarantine {
	var several interface{ Unwrap() []error }
	if errors.As(err, &several) {
		var out []millrace.Quarantine
		for _, e := range several.Unwrap() {
			out = append(out, Faults(e)...)
		}
		return out
	}
	var one *feed.SampleError
	if errors.As(err, &one) {
		return []millrace.Quarantine{one.Quarantine}
	}
	return nil
}

// Encoding returns the vocabulary of the run, or nil if no source is text.
func (w *Walk) Encoding() *tokenize.Encoding { return w.opened.Encoding }
