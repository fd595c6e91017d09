package planner_test

import (
	"fmt"
	"slices"
	"testing"

	"millrace"
	"millrace/bench/plan/workload"
	"millrace/internal/bucket"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/progress"
)

// checkTokenRows checks the rows of a step of one length, and returns their number and length.
func checkTokenRows(t *testing.T, spec *planner.Spec, sel *planner.Selection) (rows int, length uint32) {
	t.Helper()
	longest, pad := uint32(0), max(spec.PadMultiple, 1)
	for _, s := range sel.Segments {
		longest = max(longest, s.Length)
	}
	for _, b := range bucket.Shapes(bucket.Tokens, spec.SequenceLength/pad) {
		if length = b.Length * pad; length >= longest {
			break
		}
	}
	rows = spec.GlobalBatch * int(sel.Times)
	bins := slices.Clone(sel.Bin)
	slices.Sort(bins)
	if sel.SequenceLength != length || sel.GlobalBatch != rows || sel.Times < 1 ||
		sel.Times*length > spec.SequenceLength || len(slices.Compact(bins)) != len(sel.Segments) {
		t.Fatalf(
			"step %s: %d segments in %d rows of %d, %d for each of %d sequences of %d; the longest has %d",
			sel.Step,
			len(sel.Segments),
			sel.GlobalBatch,
			sel.SequenceLength,
			sel.Times,
			spec.GlobalBatch,
			spec.SequenceLength,
			longest,
		)
	}
	return rows, length
}

// TestTokenRowsFill holds the goal for fill with the window that a mixture file has by default, in the worst of three
// histograms of real lengths. Steps have room for about the tokens of the batch.
func TestTokenRowsFill(t *testing.T) {
	for _, tt := range []struct {
		batch, windows, window int
		seqlen                 uint32
		fill                   uint64 // the least allowed, in millionths, over all steps together
	}{
		{16, 4, 0, 2048, 960_000},
		{16, 4, 0, 8192, 950_000},
		{64, 2, 0, 2048, 960_000},
		{64, 2, 0, 8192, 950_000},
		{512, 1, 0, 2048, 960_000},
		{512, 2, 0, 8192, 850_000},
		{512, 1, millrace.MostWindow, 8192, 950_000},
		{64, 10, 1, 2048, 0},
	} {
		for _, name := range []string{"pretrain", "longctx", "sft"} {
			t.Run(fmt.Sprintf("%d/%d/%s/%d", tt.batch, tt.seqlen, name, tt.window), func(t *testing.T) {
				lengths, err := workload.Open(name)
				if err != nil {
					t.Fatal(err)
				}
				spec, err := workload.Spec(tt.seqlen, tt.batch, workload.FourSources()...)
				if err != nil {
					t.Fatal(err)
				}
				spec.Packing, spec.BucketRows, spec.Window = millrace.Bucketed, bucket.Tokens, tt.window
				spec.Carry = planner.AutoCarry
				selector, err := planner.NewSelector(spec, progress.New(len(spec.Sources)))
				if err != nil {
					t.Fatal(err)
				}
				n := tt.windows * spec.LongestWindow()
				sels, err := workload.Advance(selector, workload.NewCorpus(lengths, 100_000, len(spec.Sources)), n)
				if err != nil {
					t.Fatal(err)
				}
				checkFill(t, spec, sels, tt.fill)
			})
		}
	}
}

func checkFill(t *testing.T, spec *planner.Spec, sels []planner.Selection, want uint64) {
	var tokens, places, moved, segments uint64
	whole, least := uint64(spec.GlobalBatch)*uint64(spec.SequenceLength), ^uint64(0)
	lengths := map[uint32]bool{}
	for i := range sels {
		sel := &sels[i]
		checkStep(t, spec, sel)
		room := uint64(sel.GlobalBatch) * uint64(sel.SequenceLength)
		tokens, places, moved = tokens+sel.Stats.Tokens, places+room, moved+sel.Stats.Moved
		segments += uint64(len(sel.Segments))
		least = min(least, room)
		lengths[sel.SequenceLength] = true
		if len(sel.After.Carried) > 0 || sel.Stats.Most >= spec.LongestWindow() {
			t.Errorf("step %d: %d segments wait, and one moved by %d steps", i, len(sel.After.Carried), sel.Stats.Most)
		}
	}
	n := uint64(len(sels))
	t.Logf("window %d: tokens fill %.2f %% of rows; a step has room for %.2f of the batch's tokens, at least %.2f; "+
		"%d lengths; moved by %.1f steps", spec.LongestWindow(), 100*float64(tokens)/float64(places),
		float64(places)/float64(n*whole), float64(least)/float64(whole), len(lengths),
		float64(moved)/float64(segments))
	if tokens*1_000_000/places < want {
		t.Errorf("tokens fill %d millionths of the rows, want %d", tokens*1_000_000/places, want)
	}
	if least*5 < whole*2 || places*5 < n*whole*4 {
		t.Errorf("a step has room for %d of %d tokens, the mean one for %d", least, whole, places/n)
	}
}
