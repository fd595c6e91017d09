package place

import (
	"math/rand/v2"
	"slices"
	"testing"

	"millrace"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/cost"
	"millrace/orchestrator/planner/plannertest"
	"millrace/orchestrator/planner/progress"
)

// shuffled places the selection's bins in random order: cost-blind packing.
func shuffled(
	b *testing.B,
	sel *planner.Selection,
	topo millrace.Topology,
	opt Options,
	rng *rand.Rand,
) *millrace.Plan {
	blind := *sel
	blind.Bin = slices.Clone(sel.Bin)
	to := rng.Perm(sel.NumBins)
	for i := range blind.Bin {
		blind.Bin[i] = uint32(to[blind.Bin[i]])
	}
	opt.Balance = millrace.BalanceNone
	plan, err := Plan(&blind, topo, opt)
	if err != nil {
		b.Fatal(err)
	}
	return plan
}

// TestQuality holds the fill and the balance of one fixed corpus.
func TestQuality(t *testing.T) {
	spec, c := plannertest.Pretrain(t, 2048, 512, 5000)
	steps, _, err := plannertest.Collect(t, spec, progress.New(4), c, 4)
	if err != nil {
		t.Fatal(err)
	}
	for i := range steps {
		if steps[i].Stats.FillPPM < 997_000 {
			t.Errorf("step %d: fill %d ppm, want 99.7 %%", i, steps[i].Stats.FillPPM)
		}
		opt := Options{MicroBatch: 1, Layout: millrace.Varlen, Balance: millrace.BalanceFSDP, CapPermille: 1150}
		topo := millrace.Topology{Ranks: 64, TP: 1, CP: 1, PP: 1}
		plan, err := Plan(&steps[i], topo, opt)
		if err != nil {
			t.Fatal(err)
		}
		if over := cost.Weigh(plan, opt.Weighing(&steps[i], topo)).Over; over.FSDP > 8_000 || over.DP > 2_500 {
			t.Errorf("step %d: overhead %+v ppm, want at most 0.8 %% and 0.25 %%", i, over)
		}
	}
}

// TestWindowQuality holds the goal for balance with windows of four steps: 128K tokens, 128 ranks with eight
// microbatches each. Steps stay alike.
func TestWindowQuality(t *testing.T) {
	const ranks, micro = 128, 8
	spec, c := plannertest.LongContext(t, 128<<10, ranks*micro, 60_000)
	spec.Window = 4
	steps, _, err := plannertest.Collect(t, spec, progress.New(4), c, 4)
	if err != nil {
		t.Fatal(err)
	}
	opt := Options{
		MicroBatch:  1,
		Layout:      millrace.Varlen,
		Balance:     millrace.BalanceFSDP,
		CapPermille: 1150,
		Cost:        cost.Cost{Linear: 61000, Quadratic: 1},
	}
	topo := millrace.Topology{Ranks: ranks, TP: 1, CP: 1, PP: 1}
	sum, least, most := uint64(0), ^uint64(0), uint64(0)
	for i := range steps {
		plan, err := Plan(&steps[i], topo, opt)
		if err != nil {
			t.Fatal(err)
		}
		sum += cost.Weigh(plan, opt.Weighing(&steps[i], topo)).Over.FSDP
		cost := uint64(0)
		for _, s := range steps[i].Segments {
			cost += uint64(s.Length) * (opt.Cost.Linear + opt.Cost.Quadratic*uint64(s.Length))
		}
		least, most = min(least, cost), max(most, cost)
	}
	t.Logf("overhead %d ppm, the most expensive step costs %d %% of the cheapest", sum/uint64(len(steps)),
		most*100/least)
	if sum/uint64(len(steps)) > 25_000 || most*100/least > 115 {
		t.Errorf(
			"overhead %d ppm, want at most 2.5 %%; the most expensive step costs %d %% of the cheapest, "+
				"want at most 115 %%",
			sum/uint64(len(steps)), most*100/least,
		)
	}
}
