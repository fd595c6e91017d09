package main

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"millrace"
	"millrace/orchestrator/planner"
)

// lookupDocuments make a table of lengths that no cache holds: 160 MB.
const lookupDocuments = 40_000_000

// timing is what plans took.
type timing struct {
	wall, processor, placing []time.Duration
	objects, bytes           uint64 // allocated, a plan
	segments                 int
}

// processorTime is what this process has used, the collector included: on a machine that is not quiet the honest figure.
func processorTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// timed plans n steps of a shape, from facts in memory to sealed plan and digests, one after another on one core.
func timed(s shape, offers planner.Offers, n int) (*timing, error) {
	spec, err := newSpec(s.tokens, s.bins(), fourSources()...)
	if err != nil {
		return nil, err
	}
	selector, err := planner.NewSelector(spec, planner.NewState(len(spec.Sources)))
	if err != nil {
		return nil, err
	}
	opt := s.placement(dense8B(), millrace.Varlen, planner.FSDP)
	t := &timing{}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range n {
		begin, used := time.Now(), processorTime()
		sel, out, err := selector.Advance(offers)
		if err != nil || out.Kind != planner.Sealed {
			return nil, fmt.Errorf("plan for time: outcome %d, %w", out.Kind, err)
		}
		placing := processorTime()
		if _, err := planner.Place(&sel, dataParallel(s.ranks), opt); err != nil {
			return nil, err
		}
		end := processorTime()
		t.wall, t.processor, t.placing = append(t.wall, time.Since(begin)), append(t.processor, end-used), append(t.placing, end-placing)
		t.segments = len(sel.Segments)
	}
	runtime.ReadMemStats(&after)
	t.objects, t.bytes = (after.Mallocs-before.Mallocs)/uint64(n), (after.TotalAlloc-before.TotalAlloc)/uint64(n)
	slices.Sort(t.wall)
	slices.Sort(t.processor)
	slices.Sort(t.placing)
	return t, nil
}

func milliseconds(sorted []time.Duration, per1000 int) float64 {
	return sorted[(len(sorted)-1)*per1000/1000].Seconds() * 1e3
}

// threePoints are median, 99th percentile and the longest.
func threePoints(sorted []time.Duration) string {
	return fmt.Sprintf("%.1f / %.1f / %.1f ms", milliseconds(sorted, 500), milliseconds(sorted, 990), milliseconds(sorted, 1000))
}

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
		t, err := timed(s, table, g.plans)
		if err != nil {
			return nil, err
		}
		rows = append(rows,
			row{"G5", fmt.Sprintf("whole plan, %d segments × %d bins, one core: p99 ≤ %g ms", t.segments, s.bins(), g.most), threePoints(t.processor) + " (p50 / p99 / max of processor time)",
				atMost(milliseconds(t.processor, 990), g.most), fmt.Sprintf("%d plans; by the wall clock %s; %d allocations, %.1f MB a plan; lengths looked up in 160 MB in permuted order", g.plans, threePoints(t.wall), t.objects, float64(t.bytes)/1e6)},
			row{"G5", fmt.Sprintf("of that place: balance, assignments and digests: p99 ≤ %g ms", g.placing), threePoints(t.placing), atMost(milliseconds(t.placing, 990), g.placing), ""})
	}
	return rows, nil
}
