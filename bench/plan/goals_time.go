package main

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"millrace"
	"millrace/bench/plan/overhead"
	"millrace/bench/plan/workload"
	"millrace/orchestrator/offers"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/place"
	"millrace/orchestrator/planner/progress"
)

// lookupDocuments is the size of a table of lengths that exceeds every cache: 160 MB.
const lookupDocuments = 40_000_000

// manySources is the number of sources of the plans that show how the time grows with sources.
const manySources = 1000

// goal5 measures the time of plans, as processor time: a wall clock on an idle machine shows the same.
func goal5(b *bench) ([]row, error) {
	before := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(before)
	tables := map[int]*workload.Corpus{}
	for _, n := range []int{len(workload.FourSources()), manySources} {
		tables[n] = workload.NewCorpus(b.lengths["pretrain"], lookupDocuments, n)
	}
	var rows []row
	for _, g := range []struct {
		sources, ranks, plans int
		most, placing         float64 // ms
	}{
		{4, 1024, b.plans, 25, 15}, {4, 4096, max(b.plans/5, 1), 100, 60},
		{manySources, 1024, b.plans, 25, 15}, {manySources, 4096, max(b.plans/5, 1), 100, 60},
	} {
		s, table := b.pretrain8K(), tables[g.sources]
		s.ranks, s.carry = g.ranks, planner.AutoCarry
		t, err := timed(s, newQueued(table, g.ranks*s.columns*40/g.sources), g.plans)
		if err != nil {
			return nil, err
		}
		far, err := timed(s, lookup{table}, max(g.plans/5, 1))
		if err != nil {
			return nil, err
		}
		rows = append(
			rows,
			row{
				"G5",
				fmt.Sprintf(
					"whole plan, %d segments × %d bins, %d sources, one core, offers in memory to digests: p99 ≤ %g ms",
					t.segments, s.bins(), g.sources, g.most,
				),
				points(t.processor) + " (least / p50 / p99 / max, processor time)",
				atMost(milliseconds(t.processor, 990), g.most),
				fmt.Sprintf(
					"%d plans; by the wall clock %s; %d allocations and %.1f MB a plan", g.plans, points(t.wall),
					t.objects, float64(t.bytes)/1e6,
				),
			},
			row{
				"G5", fmt.Sprintf("place alone: balance, assignments and placement digest: p99 ≤ %g ms", g.placing),
				points(t.placing), atMost(milliseconds(t.placing, 990), g.placing), "",
			},
			row{
				"G5", "whole plan, the lengths looked up in 160 MB in permuted order on the way (no goal)",
				points(far.processor), printed, fmt.Sprintf("%d plans", len(far.wall)),
			},
		)
	}
	return rows, nil
}

// supply provides the offers of timed plans. The benchmark calls turn between plans and does not time it.
type supply interface {
	planner.Offers
	Sources() int
	turn(progress.State) error
}

// lookup computes each offer when the planner asks for it.
type lookup struct{ *workload.Corpus }

func (lookup) turn(progress.State) error { return nil }

// queued holds the offers of some steps in the product's queues, as the orchestrator does.
type queued struct {
	offers.Queues
	from  *workload.Corpus
	ahead millrace.Ordinal // offers kept beyond each cursor
}

func newQueued(c *workload.Corpus, ahead int) *queued {
	q := &queued{from: c, ahead: millrace.Ordinal(ahead)}
	for i := range c.Sources() {
		q.Queues = append(q.Queues, offers.NewQueue(fmt.Sprint(i), 1))
	}
	return q
}

// Sources returns the number of sources.
func (q *queued) Sources() int { return len(q.Queues) }

// turn releases the offers behind a state and adds those that came into reach.
func (q *queued) turn(s progress.State) error {
	for i, queue := range q.Queues {
		at := s.Sources[i].Ordinal
		queue.Release(s.Floor(i))
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

// timing has the times of plans, sorted.
type timing struct {
	wall, processor, placing []time.Duration
	objects, bytes           uint64 // allocated by one plan
	live                     uint64 // bytes of the heap after the last plan, minus those before the first
	segments                 int
}

// timed plans n steps of a shape one after another, from offers in memory to sealed plans with digests.
func timed(s shape, from supply, n int) (*timing, error) {
	weights := workload.FourSources()
	for len(weights) < from.Sources() {
		weights = append(weights, fmt.Sprintf("0.%d", 1+len(weights)%9))
	}
	spec, err := workload.Spec(s.tokens, s.bins(), weights...)
	if err != nil {
		return nil, err
	}
	spec.Carry = s.carry
	state := progress.New(len(spec.Sources))
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
		if state, err = t.planOne(s, selector, from); err != nil {
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

// warming is the number of plans before the measurement. They allocate memory that later plans reuse.
const warming = 3

// planOne plans one step and adds its times. It returns the state after the step.
func (t *timing) planOne(s shape, selector *planner.Selector, from supply) (progress.State, error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begin, used := time.Now(), processorTime()
	sel, out, err := selector.Advance(from)
	if err != nil || out.Kind != planner.Sealed {
		return sel.After, fmt.Errorf("time a plan: it waits for source %d at %s: %w", out.Source, out.Ordinal, err)
	}
	placing := processorTime()
	options := s.placement(overhead.Dense8B(), millrace.Varlen, millrace.BalanceFSDP)
	if _, err := place.Plan(&sel, workload.DataParallel(s.ranks), options); err != nil {
		return sel.After, err
	}
	end := processorTime()
	t.wall = append(t.wall, time.Since(begin))
	t.processor = append(t.processor, end-used)
	t.placing = append(t.placing, end-placing)
	runtime.ReadMemStats(&after)
	t.objects += after.Mallocs - before.Mallocs
	t.bytes += after.TotalAlloc - before.TotalAlloc
	t.segments = len(sel.Segments)
	return sel.After, nil
}

// milliseconds returns a percentile in milliseconds; 990 is the 99th.
func milliseconds(sorted []time.Duration, per1000 int) float64 {
	return sorted[(len(sorted)-1)*per1000/1000].Seconds() * 1e3
}

// points formats the shortest time, the median, the 99th percentile and the longest. On a busy machine, other processes
// disturb the shortest one least.
func points(sorted []time.Duration) string {
	return fmt.Sprintf(
		"%.1f / %.1f / %.1f / %.1f ms",
		milliseconds(sorted, 0), milliseconds(sorted, 500), milliseconds(sorted, 990), milliseconds(sorted, 1000),
	)
}
