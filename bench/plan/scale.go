package main

import (
	"fmt"
	"io"
	"runtime"

	"millrace"
	"millrace/bench/plan/workload"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/place"
	"millrace/orchestrator/planner/progress"
)

// scale measures the time of plans of every size, and the planner's memory.
func (b *bench) scale(out io.Writer) error {
	before := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(before)
	heading(
		out, "scale: pretrain 8K, varlen 1.15, 8 microbatches of a rank", "samples a step",
		"select ms", "place ms", "allocated a plan", "live after it",
	)
	table := workload.NewCorpus(b.lengths["pretrain"], b.documents, len(workload.FourSources()))
	for _, g := range []struct{ ranks, columns int }{
		{8, 8}, {64, 8}, {512, 8}, {1024, 8}, {4096, 8}, {8192, 8}, {8192, 16},
	} {
		s := shape{name: "pretrain", tokens: 8192, ranks: b.scaled(g.ranks), columns: g.columns, slack: 1150}
		t, err := timed(s, lookup{table}, 5)
		if err != nil {
			return err
		}
		place, whole := milliseconds(t.placing, 500), milliseconds(t.processor, 500)
		line(out, fmt.Sprintf("DP %d × %d", s.ranks, s.columns), fmt.Sprint(t.segments),
			fmt.Sprintf("%.1f", whole-place), fmt.Sprintf("%.1f", place),
			fmt.Sprintf("%.1f MB", float64(t.bytes)/1e6), fmt.Sprintf("%.1f MB", float64(t.live)/1e6))
	}
	return b.memory(out)
}

// memory measures the planner's memory beside the offers: it grows with the step and the runway, not with the data.
func (b *bench) memory(out io.Writer) error {
	heading(out, "memory: bins of 8K, best-fit, plans kept", "samples in all", "sources", "live heap", "state")
	lengths := b.lengths["pretrain"].Segments(8192, 1<<16)
	for _, g := range []struct {
		sources, bins, runway int
		documents             uint64
	}{
		{4, 1024, 4, 1e6}, {4, 1024, 4, 1e10}, {1000, 1024, 4, 1e6},
		{1000, 1024, 4, 1e10}, {1000, 1024, 32, 1e10}, {1000, 8192, 4, 1e10},
	} {
		weights := make([]string, g.sources)
		for i := range weights {
			weights[i] = fmt.Sprint(1 + i%7)
		}
		spec, err := workload.Spec(8192, g.bins, weights...)
		if err != nil {
			return err
		}
		each := g.documents / uint64(g.sources)
		live, state, err := held(
			spec, stateAfter(g.sources, each/2), workload.Vast{Lengths: lengths, Each: each}, g.runway,
		)
		if err != nil {
			return err
		}
		line(out, fmt.Sprintf("%d bins a step, %d plans", g.bins, g.runway),
			fmt.Sprintf("%.0e", float64(g.documents)), fmt.Sprint(g.sources),
			fmt.Sprintf("%.1f MB", float64(live)/1e6), fmt.Sprintf("%.1f kB", float64(state)/1e3))
	}
	return nil
}

// held plans some steps from a state on and keeps the newest plans. It returns the bytes of the heap in use, and the
// bytes of the state.
func held(
	spec *planner.Spec,
	begin progress.State,
	from planner.Offers,
	runway int,
) (live uint64, state int, err error) {
	var none, some runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&none)
	selector, err := planner.NewSelector(spec, begin)
	if err != nil {
		return 0, 0, err
	}
	opt := place.Options{MicroBatch: 1, Layout: millrace.Varlen, Balance: millrace.BalanceFSDP, CapPermille: 1150}
	plans := make([]*millrace.Plan, runway)
	for at := range runway + 8 {
		sel, err := workload.Advance(selector, from, 1)
		if err != nil {
			return 0, 0, err
		}
		if plans[at%runway], err = place.Plan(&sel[0], workload.DataParallel(128), opt); err != nil {
			return 0, 0, err
		}
		state = len(sel[0].After.Compact())
	}
	runtime.GC()
	runtime.ReadMemStats(&some)
	runtime.KeepAlive(plans)
	runtime.KeepAlive(selector)
	return some.HeapAlloc - min(none.HeapAlloc, some.HeapAlloc), state, nil
}
