package main

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"millrace"
	"millrace/orchestrator/offers"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/place"
)

// lookupDocuments make a table of lengths that no cache holds: 160 MB.
const lookupDocuments = 40_000_000

// goal5 is how long plans take. Times are of the processor, which is what the wall clock would show on a machine that does nothing else.
func goal5(b *bench) ([]row, error) {
	before := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(before)
	table := newCorpus(b.lengths["pretrain"], lookupDocuments, len(fourSources()))
	var rows []row
	for _, g := range []struct {
		ranks, plans  int
		most, placing float64 // ms
	}{{1024, b.plans, 25, 15}, {4096, max(b.plans/5, 1), 100, 60}} {
		s := b.pretrain8K()
		s.ranks = g.ranks
		t, err := timed(s, newQueued(table, g.ranks*s.columns*10), g.plans)
		if err != nil {
			return nil, err
		}
		far, err := timed(s, lookup{table}, max(g.plans/5, 1))
		if err != nil {
			return nil, err
		}
		rows = append(rows,
			row{"G5", fmt.Sprintf("whole plan, %d segments × %d bins, one core, from offers in memory to digests: p99 ≤ %g ms", t.segments, s.bins(), g.most),
				points(t.processor) + " (least / p50 / p99 / max, processor time)", atMost(milliseconds(t.processor, 990), g.most),
				fmt.Sprintf("%d plans; by the wall clock %s; %d allocations and %.1f MB a plan", g.plans, points(t.wall), t.objects, float64(t.bytes)/1e6)},
			row{"G5", fmt.Sprintf("place alone: balance, assignments and placement digest: p99 ≤ %g ms", g.placing), points(t.placing), atMost(milliseconds(t.placing, 990), g.placing), ""},
			row{"G5", "whole plan, the lengths looked up in 160 MB in permuted order on the way (no goal)", points(far.processor), printed, fmt.Sprintf("%d plans", len(far.wall))})
	}
	return rows, nil
}

// supply is where timed plans have their facts from. turn is called between plans, and not timed.
type supply interface {
	planner.Offers
	turn(planner.State) error
}

// lookup makes facts when they are asked for.
type lookup struct{ *corpus }

func (lookup) turn(planner.State) error { return nil }

// queued is what the orchestrator has of its loaders' offers: some steps' facts in the product's queues.
type queued struct {
	offers.Queues
	from  *corpus
	ahead millrace.Ordinal // facts kept beyond each cursor
}

func newQueued(c *corpus, ahead int) *queued {
	q := &queued{from: c, ahead: millrace.Ordinal(ahead)}
	for i := range c.orders {
		q.Queues = append(q.Queues, offers.NewQueue(fmt.Sprint(i), 1))
	}
	return q
}

// turn forgets what is behind a state and offers what has come within reach.
func (q *queued) turn(s planner.State) error {
	for i, queue := range q.Queues {
		at := s.Sources[i].Ordinal
		queue.Release(at)
		var batch offers.Batch
		for next := queue.Next(); next < at+q.ahead; next++ {
			meta, _ := q.from.Peek(i, next)
			batch.Metas = append(batch.Metas, meta)
		}
		if err := queue.Add(batch); err != nil {
			return err
		}
	}
	return nil
}

// timing is what plans took, sorted.
type timing struct {
	wall, processor, placing []time.Duration
	objects, bytes           uint64 // allocated, a plan
	live                     uint64 // bytes after the last, beside what was before
	segments                 int
}

// timed plans n steps of a shape one after another, from facts in memory to sealed plan and digests.
func timed(s shape, from supply, n int) (*timing, error) {
	spec, err := newSpec(s.tokens, s.bins(), fourSources()...)
	if err != nil {
		return nil, err
	}
	state := planner.NewState(len(spec.Sources))
	selector, err := planner.NewSelector(spec, state)
	if err != nil {
		return nil, err
	}
	t := &timing{}
	var none, some runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&none)
	for at := range n + warming {
		if err := from.turn(state); err != nil {
			return nil, err
		}
		if at == warming {
			runtime.GC()
			*t = timing{}
		}
		if state, err = t.plan(s, selector, from); err != nil {
			return nil, err
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&some)
	runtime.KeepAlive(selector)
	t.live = some.HeapAlloc - min(none.HeapAlloc, some.HeapAlloc)
	t.objects, t.bytes = t.objects/uint64(n), t.bytes/uint64(n)
	slices.Sort(t.wall)
	slices.Sort(t.processor)
	slices.Sort(t.placing)
	return t, nil
}

// warming plans are not counted: they find their memory.
const warming = 3

func (t *timing) plan(s shape, selector *planner.Selector, from supply) (planner.State, error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begin, used := time.Now(), processorTime()
	sel, out, err := selector.Advance(from)
	if err != nil || out.Kind != planner.Sealed {
		return sel.After, fmt.Errorf("plan for time: waits for source %d at %s: %w", out.Source, out.Ordinal, err)
	}
	placing := processorTime()
	if _, err := place.Plan(&sel, dataParallel(s.ranks), s.placement(dense8B(), millrace.Varlen, millrace.BalanceFSDP)); err != nil {
		return sel.After, err
	}
	end := processorTime()
	t.wall, t.processor, t.placing = append(t.wall, time.Since(begin)), append(t.processor, end-used), append(t.placing, end-placing)
	runtime.ReadMemStats(&after)
	t.objects, t.bytes, t.segments = t.objects+after.Mallocs-before.Mallocs, t.bytes+after.TotalAlloc-before.TotalAlloc, len(sel.Segments)
	return sel.After, nil
}

// processorTime is what this process has used, the collector included: on a machine that is not quiet the honest figure.
func processorTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

func milliseconds(sorted []time.Duration, per1000 int) float64 {
	return sorted[(len(sorted)-1)*per1000/1000].Seconds() * 1e3
}

// points are the shortest, the median, the 99th percentile and the longest. Where much else runs, the shortest is what the code takes.
func points(sorted []time.Duration) string {
	return fmt.Sprintf("%.1f / %.1f / %.1f / %.1f ms", milliseconds(sorted, 0), milliseconds(sorted, 500), milliseconds(sorted, 990), milliseconds(sorted, 1000))
}
