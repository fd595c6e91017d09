package dryrun

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sync/errgroup"

	"millrace"
	"millrace/constructors"
	"millrace/internal/app/setup"
	"millrace/orchestrator/offers"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/progress"
	"millrace/orchestrator/planner/strategy"
	"millrace/sources/budget"
	"millrace/sources/feed"
	"millrace/sources/order"
	"millrace/sources/tokenize"
)

// mostMemory bounds the payload held, whatever the run itself may hold.
const mostMemory = 512 << 20

// Step is one planned step.
type Step = strategy.Planned

// Walk plans the steps of a run from 0 on. One owner; not for concurrent use.
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
	dry      []*millrace.Step // where each source ended
	begins   []*millrace.Step // by stage: the first step
	stale    []*millrace.Step // where its pass after Fresh began
}

// Found is what a walk has come to know of a source's records in its first pass, and what it found bad.
type Found struct {
	Records uint64   // offered of the first pass
	Tokens  uint64   // of these, but for those that the source's own filter refuses
	Refused uint64   // of these, by the source's own filter
	Rejects []Reject // in ordinal order
}

// Reject is a record that a run would quarantine.
type Reject struct {
	millrace.Quarantine
	Sample  millrace.SampleID
	Ordinal millrace.Ordinal
}

// Walk hands a walk for that many ranks to visit. Reading goes on beside it and has ended when Walk returns.
func (o *Opened) Walk(ctx context.Context, ranks int, visit func(ctx context.Context, w *Walk) error) error {
	w, err := o.newWalk(ranks)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	// A feed that cannot go on fails whoever waits for it, so its own return says nothing new.
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
	strategy, err := setup.Strategy(c, topology)
	if err != nil {
		return nil, err
	}
	spec := &strategy.Mix
	if len(o.Sources) != len(spec.Sources) {
		return nil, fmt.Errorf("plan: %d of %d sources are open", len(o.Sources), len(spec.Sources))
	}
	w := &Walk{opened: o, strategy: strategy, topology: topology, prefix: newPrefix(spec), shapes: constructors.NewSet(c.Shapes(), c.PadMultiple),
		wants: make([]millrace.Ordinal, len(o.Sources)), found: make([]Found, len(o.Sources)), dry: make([]*millrace.Step, len(o.Sources)),
		stale: make([]*millrace.Step, len(o.Sources)), begins: make([]*millrace.Step, 1+len(spec.Stages))}
	if w.plans, err = strategy.Plans(topology, progress.New(len(spec.Sources))); err != nil {
		return nil, err
	}
	budget := budget.New(min(int64(c.Limits.LoaderMemory)/2, mostMemory))
	parallel := max(1, runtime.GOMAXPROCS(0)/len(o.Sources))
	for _, s := range o.Sources {
		w.queues = append(w.queues, offers.NewQueue(s.Name(), 1))
		w.feeds = append(w.feeds, feed.New(s, feed.Position{}, order.Stripe{}, feed.Config{Budget: budget, Parallel: parallel}))
	}
	return w, nil
}

// Next plans the next step; nil after the last, see Over. The samples of the step before can be fetched no more.
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
			return nil, err
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

// Found returns what is known of each source by now.
func (w *Walk) Found() []Found { return w.found }

// Sample looks at the first n records of every source, so that something is known of those that are drawn late or never.
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

// wait takes in the next offers of a source of which a plan needs an ordinal.
func (w *Walk) wait(ctx context.Context, source int, ordinal millrace.Ordinal) error {
	q, f := w.queues[source], w.feeds[source]
	w.wants[source] = max(w.wants[source], q.Demand(ordinal))
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
		if o.Epoch > 0 {
			continue
		}
		found.Records++
		if o.SampleMeta.Refused&1 != 0 {
			found.Refused++
		} else {
			found.Tokens += uint64(o.Lengths.Tokens)
		}
		if o.Quarantine != nil {
			found.Rejects = append(found.Rejects, Reject{*o.Quarantine, o.SampleMeta.ID, o.Ordinal})
		}
	}
}

// batch is a feed's news as the queue takes them.
func batch(b *feed.Batch) offers.Batch {
	out := offers.Batch{Metas: make([]millrace.SampleMeta, len(b.Offers)), SeekPoints: b.SeekPoints, Ended: b.End, End: b.EndOrdinal}
	for i := range b.Offers {
		out.Metas[i] = b.Offers[i].SampleMeta
		if q := b.Offers[i].Quarantine; q != nil {
			if out.Rejects == nil {
				out.Rejects = map[millrace.Ordinal]millrace.Quarantine{}
			}
			out.Rejects[b.Offers[i].Ordinal] = *q
		}
	}
	return out
}

// Faults lists the samples that an error of Fetch or Build is about: planned, and bad when they were read.
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

// Encoding is the run's vocabulary, nil where no source is text.
func (w *Walk) Encoding() *tokenize.Encoding { return w.opened.Encoding }
