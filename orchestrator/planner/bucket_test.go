package planner_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"millrace"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/plannertest"
	"millrace/orchestrator/planner/progress"
)

// TestBucketsAreOfOneLength: every row of a step has the length of its longest segment's bucket, and rows are much
// fuller than rows of the run's length.
func TestBucketsAreOfOneLength(t *testing.T) {
	padded := map[millrace.Packing]uint64{}
	for _, packing := range []millrace.Packing{millrace.Pad, millrace.Bucketed} {
		spec, c := plannertest.Pretrain(t, 2048, 64, 4000)
		spec.Packing, spec.PadMultiple = packing, 8
		if packing == millrace.Bucketed {
			spec.Carry = planner.AutoCarry
		}
		steps, _, err := plannertest.Collect(t, spec, progress.New(4), c, 100)
		if err != nil {
			t.Fatal(err)
		}
		pure, rows, tokens := 0, uint64(0), uint64(0)
		for i := range steps {
			sel := &steps[i]
			longest, shortest := uint32(0), sel.SequenceLength
			for _, s := range sel.Segments {
				longest, shortest = max(longest, s.Length), min(shortest, s.Length)
			}
			bins := slices.Clone(sel.Bin)
			slices.Sort(bins)
			if len(slices.Compact(bins)) != len(sel.Segments) || len(bins) != 64 || longest > sel.SequenceLength {
				t.Fatalf("%s: step %d has %d segments in %d bins, the longest %d of %d", packing, i, len(sel.Segments),
					len(bins), longest, sel.SequenceLength)
			}
			if packing == millrace.Bucketed && sel.SequenceLength != spec.SequenceLength>>spec.Halved(0, 0, longest) {
				t.Fatalf("step %d has rows of %d for %d tokens", i, sel.SequenceLength, longest)
			}
			if shortest > sel.SequenceLength/2 {
				pure++
			}
			rows += uint64(sel.GlobalBatch) * uint64(sel.SequenceLength)
			tokens += sel.Stats.Tokens
		}
		padded[packing] = tokens * 100 / rows
		t.Logf("%s: %d of 100 steps are of one bucket alone", packing, pure)
		if packing == millrace.Bucketed && pure < 55 {
			t.Errorf("%d of 100 steps are of one bucket alone", pure)
		}
	}
	t.Logf("tokens fill %d %% of padded rows, %d %% of bucketed ones", padded[millrace.Pad], padded[millrace.Bucketed])
	if padded[millrace.Bucketed] < 72 || padded[millrace.Pad] > padded[millrace.Bucketed]-20 {
		t.Errorf("tokens fill %d %% of padded rows, %d %% of bucketed ones", padded[millrace.Pad],
			padded[millrace.Bucketed])
	}
}

// TestBucketsAnyLength: a segment goes to the shortest row that holds it and that the pad multiple divides.
func TestBucketsAnyLength(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for range 3000 {
		pad := []uint32{1, 2, 8, 12}[rng.IntN(4)]
		spec := plannertest.NewSpec(t, pad*(1+rng.Uint32N(4096)), 4, "1")
		spec.PadMultiple = pad
		in, _ := spec.StageAt(0, 0)
		tokens := 1 + rng.Uint32N(in.SequenceLength)
		got, want := in.SequenceLength>>spec.Halved(0, 0, tokens), in.SequenceLength
		for n := uint32(1); n <= millrace.MostHalvings; n++ {
			if length := in.SequenceLength >> n; length<<n == in.SequenceLength && length%pad == 0 && length >= tokens {
				want = length
			}
		}
		if got != want {
			t.Fatalf("%d tokens of %d, padded to %d: a row of %d, want %d", tokens, in.SequenceLength, pad, got, want)
		}
	}
}
