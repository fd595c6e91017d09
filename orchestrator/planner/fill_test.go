package planner

import (
	"testing"

	"millrace"
)

// longContext is the corpus of long contexts: the classes of pretrain by other token shares.
func longContext(t testing.TB, seqlen uint32, batch, docs int) (*Spec, *corpus) {
	spec, c := pretrain(t, seqlen, batch, docs)
	spec.Schedule = constant(t, "0.35", "0.10", "0.15", "0.40")
	return spec, c
}

// TestFill is goal G6: how full the bins are in steps of about 8,192 segments, with and without carry, and that nothing is cut but what is longer
// than a bin.
func TestFill(t *testing.T) {
	for _, tt := range []struct {
		name   string
		corpus func(testing.TB, uint32, int, int) (*Spec, *corpus)
		seqlen uint32
		batch  int
		carry  int
		fill   uint64 // least, in millionths, of all steps together
	}{
		{"8K", pretrain, 8 << 10, 1024, 0, 999_000},
		{"8K, carry", pretrain, 8 << 10, 1024, 512, 999_900},
		{"128K", longContext, 128 << 10, 144, 0, 996_000},
		{"128K, carry", longContext, 128 << 10, 144, 512, 999_500},
	} {
		t.Run(tt.name, func(t *testing.T) {
			spec, c := tt.corpus(t, tt.seqlen, tt.batch, 20_000)
			spec.Carry = tt.carry
			steps, _, err := collect(t, spec, NewState(4), c, 12)
			if err != nil {
				t.Fatal(err)
			}
			fill, segments, packs, oldest := uint64(0), 0, 0, uint32(0)
			for i := range steps {
				checkStep(t, spec, &steps[i])
				fill += steps[i].Stats.FillPPM
				segments += len(steps[i].Segments)
				packs += steps[i].Stats.Packs
				for _, c := range steps[i].After.Carried {
					oldest = max(oldest, c.Age)
				}
			}
			n := uint64(len(steps))
			t.Logf("fill %d ppm, %d segments and %d packs a step, %d carried, the oldest for %d steps", fill/n, segments/len(steps), packs/len(steps), len(steps[n-1].After.Carried), oldest)
			if fill/n < tt.fill {
				t.Errorf("fill %d ppm, want %d", fill/n, tt.fill)
			}
			if oldest > MostWaits || tt.carry > 0 && packs > len(steps) {
				t.Errorf("%d packs in %d steps, and a segment that waited for %d", packs, len(steps), oldest)
			}
		})
	}
}

// TestWindowQuality is goal G2 with windows of four steps: 128K tokens, 128 ranks with eight microbatches each. Steps stay alike.
func TestWindowQuality(t *testing.T) {
	const ranks, micro = 128, 8
	spec, c := longContext(t, 128<<10, ranks*micro, 60_000)
	spec.Window = 4
	steps, _, err := collect(t, spec, NewState(4), c, 4)
	if err != nil {
		t.Fatal(err)
	}
	opt := PlaceOptions{MicroBatch: 1, Layout: millrace.Varlen, Balance: millrace.BalanceFSDP, CapPermille: 1150, Cost: Cost{Linear: 61000, Quadratic: 1}}
	topo := millrace.Topology{Ranks: ranks, TP: 1, CP: 1, PP: 1}
	sum, least, most := uint64(0), ^uint64(0), uint64(0)
	for i := range steps {
		plan, err := Place(&steps[i], topo, opt)
		if err != nil {
			t.Fatal(err)
		}
		sum += Weigh(plan, opt.Weighing(&steps[i], topo)).Over.FSDP
		cost := uint64(0)
		for _, s := range steps[i].Segments {
			cost += uint64(s.Length) * (opt.Cost.Linear + opt.Cost.Quadratic*uint64(s.Length))
		}
		least, most = min(least, cost), max(most, cost)
	}
	t.Logf("overhead %d ppm, the dearest step costs %d %% of the cheapest", sum/uint64(len(steps)), most*100/least)
	if sum/uint64(len(steps)) > 25_000 || most*100/least > 115 {
		t.Errorf("overhead %d ppm, want at most 2.5 %%; the dearest step costs %d %% of the cheapest, want at most 115 %%", sum/uint64(len(steps)), most*100/least)
	}
}
