package planner_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"millrace"
	"millrace/mixing"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/plannertest"
	"millrace/orchestrator/planner/progress"
)

// randomStages gives a spec up to three further stages and ramps, short enough that a random corpus reaches them.
func randomStages(rng *rand.Rand, spec *planner.Spec) {
	measure, at := []mixing.Measure{mixing.Steps, mixing.Tokens}[rng.IntN(2)], uint64(0)
	ramp := func(batch int) millrace.Rampup {
		if rng.IntN(2) == 0 {
			return millrace.Rampup{}
		}
		return millrace.Rampup{
			Start:     uint32(batch) / 4,
			Increment: uint32(batch) / 4,
			Samples:   1 + rng.Uint64N(uint64(batch)*4),
		}
	}
	spec.Rampup = ramp(spec.GlobalBatch)
	for range 1 + rng.IntN(3) {
		in := planner.Stage{
			SequenceLength: []uint32{8, 32, 64, 256}[rng.IntN(4)], GlobalBatch: []int{4, 8, 12}[rng.IntN(3)],
			Packing: []millrace.Packing{
				millrace.BestFit, millrace.Pad, millrace.Concat, millrace.Bucketed,
			}[rng.IntN(4)],
		}
		if at += 1 + rng.Uint64N(3); measure == mixing.Tokens {
			at += rng.Uint64N(1500)
		} else {
			in.Rampup = ramp(in.GlobalBatch)
		}
		in.From = mixing.Point{Measure: measure, Count: at}
		spec.Stages = append(spec.Stages, in)
	}
}

// TestStagesHoldEveryTokenOnce: each step has its stage's bins, and documents that go on across a change lose nothing.
// A run restored at any step, with metadata that comes late, gives the same steps.
func TestStagesHoldEveryTokenOnce(t *testing.T) {
	crossed, changes := 0, 0
	for seed := range uint64(80) {
		rng := rand.New(rand.NewPCG(seed, 31))
		spec := plannertest.RandomSpec(t, rng, 1+rng.IntN(3))
		randomStages(rng, spec)
		if spec.Window = []int{1, 2, 4}[rng.IntN(3)]; rng.IntN(2) == 0 {
			spec.Carry = 8
		}
		c := plannertest.RandomCorpus(rng, len(spec.Sources), 120, 64)
		c.SomeInPieces(rng, spec)
		steps, _, err := plannertest.Collect(t, spec, progress.New(len(spec.Sources)), c, 0)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		held := map[[2]uint64][]millrace.Segment{} // by source and ordinal
		tokens := uint64(0)
		for i := range steps {
			sel := &steps[i]
			checkStage(t, spec, sel, tokens)
			if sel.After.Done == (progress.Done{}) { // all steps of a window are of one stage
				tokens = sel.After.Tokens
			}
			if i > 0 && sel.SequenceLength != steps[i-1].SequenceLength {
				changes++
				if slices.ContainsFunc(steps[i-1].After.Sources, func(s progress.Source) bool { return s.Offset > 0 }) {
					crossed++
				}
			}
			for _, seg := range sel.Segments {
				key := [2]uint64{uint64(seg.Source), uint64(seg.Ordinal)}
				if n := len(held[key]); spec.Carry == 0 && spec.Window < 2 && n > 0 &&
					held[key][n-1].Offset > seg.Offset {
					t.Fatalf("seed %d step %d: document %v goes on at %d, behind %+v", seed, i, key, seg.Offset,
						held[key][n-1])
				}
				held[key] = append(held[key], seg)
			}
		}
		for key, parts := range held {
			slices.SortFunc(parts, func(a, b millrace.Segment) int { return cmp.Compare(a.Offset, b.Offset) })
			doc := c.Docs[key[0]][key[1]%uint64(len(c.Docs[key[0]]))]
			n, end := doc.Offset, doc.Lengths.Tokens
			if piece := spec.Sources[key[0]].PieceTokens; piece > 0 {
				end = min(end, n+piece)
			}
			for _, seg := range parts {
				if seg.Offset != n {
					t.Fatalf("seed %d: document %v goes on at %d, %d tokens are placed", seed, key, seg.Offset, n)
				}
				n += seg.Length
			}
			if n != end {
				t.Fatalf("seed %d: the tokens up to %d of %d of %v were placed", seed, n, end, key)
			}
		}
		for i := range steps {
			again, _, err := plannertest.Collect(t, spec, steps[i].After, plannertest.NewShy(c, seed), 2)
			for j := range again {
				if err != nil || again[j].Content != steps[i+1+j].Content || !again[j].After.Equal(steps[i+1+j].After) {
					t.Fatalf("seed %d: step %d from the state after step %d differs: %v", seed, i+1+j, i, err)
				}
			}
		}
	}
	if crossed < 10 || changes < 50 {
		t.Fatalf("%d changes of length, %d with a document under way: the test saw too little", changes, crossed)
	}
}

// checkStage checks any selection of a run with stages.
func checkStage(t *testing.T, spec *planner.Spec, sel *planner.Selection, tokens uint64) {
	t.Helper()
	want := dumbStage(spec, uint64(sel.Step), tokens)
	if sel.SequenceLength != want.SequenceLength &&
		(want.Packing != millrace.Bucketed || sel.SequenceLength > want.SequenceLength) ||
		sel.GlobalBatch != want.GlobalBatch*int(max(sel.Times, 1)) ||
		max(sel.Times, 1)*sel.SequenceLength > want.SequenceLength {
		t.Fatalf("step %s: %d bins of %d, want %d of %d", sel.Step, sel.GlobalBatch, sel.SequenceLength,
			want.GlobalBatch, want.SequenceLength)
	}
	held, inBin := make([]uint64, sel.NumBins), make([]int, sel.NumBins)
	for i, seg := range sel.Segments {
		held[sel.Bin[i]] += uint64(spec.Units(seg.Length)) * uint64(sel.PadMultiple)
		if inBin[sel.Bin[i]]++; want.Packing == millrace.Pad && inBin[sel.Bin[i]] > 1 {
			t.Fatalf("step %s: two segments in bin %d", sel.Step, sel.Bin[i])
		}
		piece := spec.Sources[seg.Source].PieceTokens
		isCut := seg.More && (piece == 0 || (seg.Offset+seg.Length)%piece > 0)
		if seg.Length == 0 || seg.Length > want.SequenceLength ||
			isCut && seg.Length != want.SequenceLength && spec.Carry == 0 && want.Packing != millrace.Concat {
			t.Fatalf("step %s: segment %+v is cut at a forbidden place", sel.Step, seg)
		}
	}
	if slices.Max(held) > uint64(sel.SequenceLength) || sel.NumBins != sel.GlobalBatch && !sel.Incomplete {
		t.Fatalf("step %s: %d of %d bins, up to %d of %d tokens", sel.Step, sel.NumBins, sel.GlobalBatch,
			slices.Max(held), sel.SequenceLength)
	}
}

// dumbStage counts a stage's steps one by one.
func dumbStage(spec *planner.Spec, step, tokens uint64) planner.Stage {
	all := append(
		[]planner.Stage{
			{
				SequenceLength: spec.SequenceLength,
				GlobalBatch:    spec.GlobalBatch,
				Rampup:         spec.Rampup,
				Packing:        spec.Packing,
			},
		},
		spec.Stages...)
	i := len(all) - 1
	for i > 0 && (all[i].From.Measure == mixing.Steps && step < all[i].From.Count ||
		all[i].From.Measure == mixing.Tokens && tokens < all[i].From.Count) {
		i--
	}
	in := all[i]
	whole, r, consumed := in.GlobalBatch, in.Rampup, uint64(0)
	for at := all[i].From.Count; r.Samples > 0 && at <= step; at++ {
		if in.GlobalBatch = whole; consumed < r.Samples {
			in.GlobalBatch = int(r.Start) + int(
				consumed*(uint64(whole)-uint64(r.Start))/uint64(r.Increment)/r.Samples,
			)*int(
				r.Increment,
			)
		}
		consumed += uint64(in.GlobalBatch)
	}
	return in
}
