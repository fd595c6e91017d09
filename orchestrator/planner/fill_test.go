package planner_test

import (
	"testing"

	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/plannertest"
	"millrace/orchestrator/planner/progress"
)

// TestFill holds the goal for fill: how full the bins are in steps of about 8,192 segments, with and without carry.
// Only documents longer than a bin are cut.
func TestFill(t *testing.T) {
	for _, tt := range []struct {
		name   string
		corpus func(testing.TB, uint32, int, int) (*planner.Spec, *plannertest.Corpus)
		seqlen uint32
		batch  int
		carry  int
		fill   uint64 // the least allowed, in millionths, over all steps together
	}{
		{"8K", plannertest.Pretrain, 8 << 10, 1024, 0, 999_000},
		{"8K, carry", plannertest.Pretrain, 8 << 10, 1024, 512, 999_900},
		{"128K", plannertest.LongContext, 128 << 10, 144, 0, 996_000},
		{"128K, carry", plannertest.LongContext, 128 << 10, 144, 512, 999_500},
	} {
		t.Run(tt.name, func(t *testing.T) {
			spec, c := tt.corpus(t, tt.seqlen, tt.batch, 20_000)
			spec.Carry = tt.carry
			steps, _, err := plannertest.Collect(t, spec, progress.New(4), c, 12)
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
			t.Logf("fill %d ppm, %d segments and %d packs a step, %d carried, the oldest for %d steps", fill/n,
				segments/len(steps), packs/len(steps), len(steps[n-1].After.Carried), oldest)
			if fill/n < tt.fill {
				t.Errorf("fill %d ppm, want %d", fill/n, tt.fill)
			}
			if oldest > progress.PoolWaits || tt.carry > 0 && packs > len(steps) {
				t.Errorf("%d packs in %d steps, and a segment that waited for %d", packs, len(steps), oldest)
			}
		})
	}
}
