package main

import (
	"fmt"
	"math"
	"math/rand/v2"

	"millrace"
	"millrace/bench/plan/baseline"
	"millrace/bench/plan/overhead"
	"millrace/bench/plan/workload"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/cost"
	"millrace/orchestrator/planner/place"
	"millrace/orchestrator/planner/progress"
)

// picturedModel is a ViT of 0.6 billion parameters in front of a model of 8 billion.
func picturedModel() cost.Cost {
	return cost.Model{Layers: 32, Hidden: 4096, Heads: 32, KVHeads: 8, HeadDim: 128, FFN: 14336, Vocab: 128256,
		Encoder: &cost.EncoderModel{Layers: 32, Hidden: 1280, Heads: 16, FFN: 5120}}.Cost()
}

// goal11 measures one assignment for encoder and backbone, with a barrier between them.
func goal11(b *bench) ([]row, error) {
	var rows []row
	for _, ranks := range []int{64, 512, 4096} {
		ranks = b.scaled(ranks)
		r, err := b.phases(ranks)
		if err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	return rows, nil
}

func (b *bench) phases(ranks int) (row, error) {
	const rowsOfRank = 5 // of 8K tokens: some 32 documents
	spec, err := workload.Spec(8192, rowsOfRank*ranks, "1")
	if err != nil {
		return row{}, err
	}
	selector, err := planner.NewSelector(spec, progress.New(1))
	if err != nil {
		return row{}, err
	}
	sels, err := workload.Advance(selector, workload.NewPictures(1<<18), 1)
	if err != nil {
		return row{}, err
	}
	prices := picturedModel()
	opt := place.Options{
		MicroBatch:  rowsOfRank,
		Layout:      millrace.Varlen,
		Balance:     millrace.BalanceFSDP,
		CapPermille: 1150,
		Cost:        prices,
	}
	begin := processorTime()
	plan, err := place.Plan(&sels[0], workload.DataParallel(ranks), opt)
	if err != nil {
		return row{}, err
	}
	took := processorTime() - begin
	loads := make([]overhead.Phases, ranks)
	for i := range plan.Assignments {
		a := &plan.Assignments[i]
		c := overhead.TwoPhases(prices, &a.Segment)
		loads[a.Rank][0] += c[0]
		loads[a.Rank][1] += c[1]
	}
	ours := overhead.Waiting(loads)
	said := float64(cost.Weigh(plan, opt.Weighing(&sels[0], workload.DataParallel(ranks))).Over.FSDP) / 1e4
	if math.Abs(ours-said) > .01 {
		return row{}, fmt.Errorf(
			"encoder and backbone over %d ranks: the planner computes %g %%, this program %g %%",
			ranks, said, ours,
		)
	}
	costs := make([]overhead.Phases, len(sels[0].Segments))
	for i := range costs {
		costs[i] = overhead.TwoPhases(prices, &sels[0].Segments[i])
	}
	longest := func(weight func(overhead.Phases) float64) string {
		return percent(overhead.Waiting(baseline.LongestPhases(costs, ranks, weight)))
	}
	random := overhead.Waiting(baseline.RandomPhases(costs, ranks, rand.New(rand.NewPCG(workload.Seed, 12))))
	return row{
		"G11", fmt.Sprintf("encoder and backbone, barrier between, DP %d × %d documents, one assignment: "+
			"≤ 0.5 %% over the mean", ranks, len(costs)/ranks),
		percent(ours), atMost(ours, .5),
		fmt.Sprintf("random %s, LPT by the backbone %s, LPT by the sum %s; place took %.0f ms", percent(random),
			longest(func(c overhead.Phases) float64 { return c[1] }),
			longest(func(c overhead.Phases) float64 { return c[0] + c[1] }), took.Seconds()*1e3),
	}, nil
}
