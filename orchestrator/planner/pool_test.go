package planner_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"millrace/bench/plan/workload"
	"millrace/mixing"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/progress"
)

// TestPoolFillsSteps holds the goal for fill with carry: auto, in the worst of three histograms of real lengths:
// documents wait for less than three steps in the mean, and none longer than it may.
func TestPoolFillsSteps(t *testing.T) {
	for _, tt := range []struct {
		batch, steps int
		fill         uint64 // the least allowed, in millionths
	}{{16, 120, 999_000}, {64, 60, 999_700}, {512, 40, 999_900}} {
		for _, seqlen := range []uint32{2048, 8192} {
			for _, name := range []string{"pretrain", "longctx", "sft"} {
				t.Run(fmt.Sprintf("%d/%d/%s", tt.batch, seqlen, name), func(t *testing.T) {
					fill, moved, most, state := pooled(t, name, seqlen, tt.batch, tt.steps, planner.AutoCarry)
					t.Logf("fill %d ppm, moved by %.2f steps, at most %d; a state has %d bytes", fill, moved, most,
						state)
					if fill < tt.fill || moved > 3 || most > progress.PoolWaits {
						t.Errorf("fill %d ppm, want %d; moved by %.2f steps, at most %d", fill, tt.fill, moved, most)
					}
				})
			}
		}
	}
}

// pooled selects steps of one histogram and returns the mean fill in millionths, the mean and the largest number of
// steps that a segment moved, and the largest state.
func pooled(
	t *testing.T, name string, seqlen uint32, batch, steps, carry int,
) (fill uint64, moved float64, most, state int) {
	lengths, err := workload.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := workload.Spec(seqlen, batch, workload.FourSources()...)
	if err != nil {
		t.Fatal(err)
	}
	spec.Carry = carry
	selector, err := planner.NewSelector(spec, progress.New(len(spec.Sources)))
	if err != nil {
		t.Fatal(err)
	}
	sels, err := workload.Advance(selector, workload.NewCorpus(lengths, 100_000, len(spec.Sources)), steps)
	if err != nil {
		t.Fatal(err)
	}
	segments := 0
	for i := range sels {
		sel := &sels[i]
		checkStep(t, spec, sel)
		fill += sel.Stats.FillPPM
		moved += float64(sel.Stats.Moved)
		segments += len(sel.Segments)
		most, state = max(most, sel.Stats.Most), max(state, len(sel.After.Compact()))
		for s, src := range sel.After.Sources { // of the draws
			if off := max(src.Deficit, -src.Deficit); off > 2*int64(seqlen)*mixing.One {
				t.Errorf("step %d: source %d is %d tokens from its target", i, s, off/mixing.One)
			}
		}
	}
	return fill / uint64(steps), moved / float64(segments), most, state
}

// TestMoreCarryFillsNoWorse: over random lengths, a run with a larger carry fills its steps as well, apart from a
// quarter of a percent where lengths fit together badly.
func TestMoreCarryFillsNoWorse(t *testing.T) {
	rng := rand.New(rand.NewPCG(12, 7))
	for round := range 16 {
		seqlen, batch := uint32(256)<<rng.IntN(5), 8<<rng.IntN(4)
		lengths := randomLengths(t, rng, seqlen)
		least, least4 := uint64(0), 0
		for _, carry := range []int{0, 4, 16, 64, 256, 512, planner.AutoCarry} {
			fill := fillOf(t, lengths, seqlen, batch, carry)
			if fill+2500 < least {
				t.Errorf(
					"round %d, %d sequences of %d: carry %d fills %d ppm, carry %d filled %d",
					round,
					batch,
					seqlen,
					carry,
					fill,
					least4,
					least,
				)
			}
			if fill > least {
				least, least4 = fill, carry
			}
		}
	}
}

// randomLengths returns a random histogram: a few peaks, or a range of lengths, with some longer than a sequence.
func randomLengths(t *testing.T, rng *rand.Rand, seqlen uint32) *workload.Histogram {
	var text strings.Builder
	from, to := 1+rng.Uint32N(seqlen/4), seqlen/4+rng.Uint32N(seqlen*5/4)
	peaks := 3 + rng.IntN(400)
	for range peaks {
		fmt.Fprintf(&text, "%d,%d\n", from+rng.Uint32N(to-from+1), 1+rng.IntN(1000))
	}
	h, err := workload.Read("random", strings.NewReader("length,count\n"+text.String()))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func fillOf(t *testing.T, lengths *workload.Histogram, seqlen uint32, batch, carry int) (ppm uint64) {
	spec, err := workload.Spec(seqlen, batch, workload.FourSources()...)
	if err != nil {
		t.Fatal(err)
	}
	spec.Carry = carry
	selector, err := planner.NewSelector(spec, progress.New(len(spec.Sources)))
	if err != nil {
		t.Fatal(err)
	}
	const steps = 25
	sels, err := workload.Advance(selector, workload.NewCorpus(lengths, 50_000, len(spec.Sources)), steps)
	if err != nil {
		t.Fatal(err)
	}
	for i := range sels {
		ppm += sels[i].Stats.FillPPM
	}
	return ppm / steps
}
