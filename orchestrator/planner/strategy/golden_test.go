package strategy

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"millrace"
	"millrace/mixing"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/place"
	"millrace/orchestrator/planner/plannertest"
	"millrace/orchestrator/planner/progress"
)

var rewrite = flag.Bool("rewrite", false, "write the files of testdata anew: only together with a new PlannerVersion")

// goldenLengths is the small table of documents: made by integers alone, so that it is the same everywhere.
func goldenLengths(source, n int) []millrace.SampleMeta {
	docs := make([]millrace.SampleMeta, n)
	x := uint32(source)*7919 + 12345
	for i := range docs {
		x = x*1664525 + 1013904223
		docs[i] = plannertest.Document(i, (x>>8)%uint32(20<<(2*source)))
	}
	return docs
}

// TestGolden compares plans of a fixed table with the ones checked in, for runs of each planner version. It fails on
// every change of the stream. Such a change needs a new PlannerVersion. A difference between hosts is a bug.
func TestGolden(t *testing.T) {
	for _, tt := range []struct {
		version uint32
		carry   int
		path    string
	}{
		{2, 0, "testdata/golden.txt"},
		{2, 5, "testdata/golden-carry.txt"},
		{3, planner.AutoCarry, "testdata/golden-pool.txt"},
	} {
		t.Run(tt.path, func(t *testing.T) { checkGolden(t, tt.version, tt.carry, tt.path) })
	}
}

func checkGolden(t *testing.T, version uint32, carry int, path string) {
	var out strings.Builder
	for _, unit := range []millrace.Unit{millrace.UnitTokens, millrace.UnitSamples} {
		for _, packing := range []millrace.Packing{millrace.BestFit, millrace.Pad} {
			golden(t, &out, unit, packing, progress.NewOf(version, 3), carry)
		}
	}
	if *rewrite {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got, wanted := strings.Split(out.String(), "\n"), strings.Split(string(want), "\n")
	for i := range min(len(got), len(wanted)) {
		if got[i] != wanted[i] {
			t.Fatalf("line %d:\n got %s\nwant %s", i+1, got[i], wanted[i])
		}
	}
	if len(got) != len(wanted) {
		t.Fatalf("%d lines, want %d", len(got), len(wanted))
	}
}

// golden writes one run: for every step its content, its placements and the state after it; the first step of each kind
// in full.
func golden(
	t *testing.T, out *strings.Builder, unit millrace.Unit, packing millrace.Packing, from progress.State, carry int,
) {
	spec := plannertest.NewSpec(t, 64, 16, "1", "1", "1")
	spec.Unit, spec.Packing, spec.PadMultiple, spec.LastStep = unit, packing, 4, millrace.ShortLast
	spec.Carry = carry
	spec.Schedule = plannertest.Schedule(
		t,
		mixing.Milestone{Weights: plannertest.Weights(t, "5", "3", "2")},
		mixing.Milestone{
			From:    mixing.Point{Count: 3},
			Weights: plannertest.Weights(t, "1", "1", "4"),
			Ramp:    mixing.RampCosine,
			Over:    mixing.Point{Count: 4},
		},
	)
	c := &plannertest.Corpus{
		Docs:   [][]millrace.SampleMeta{goldenLengths(0, 90), goldenLengths(1, 70), goldenLengths(2, 40)},
		Epochs: []uint64{1, 2, 1},
	}
	steps, _, err := plannertest.Collect(t, spec, from, c, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range steps {
		sel := &steps[i]
		fmt.Fprintf(out, "%s %s step %s: %d segments, %d bins, %d ppm, last %v\n  content %s\n  after %s\n", unit,
			packing, sel.Step, len(sel.Segments), sel.NumBins, sel.Stats.FillPPM, sel.Last, sel.Content, sel.After)
		for _, balance := range []millrace.Balance{
			millrace.BalanceFSDP, millrace.BalanceDP, millrace.BalancePP, millrace.BalanceNone,
		} {
			for _, layout := range []millrace.Layout{millrace.Packed, millrace.Varlen} {
				opt := place.Options{
					MicroBatch:  2,
					Layout:      layout,
					Balance:     balance,
					CapPermille: 1250,
					LastStep:    spec.LastStep,
				}
				plan, err := place.Plan(sel, millrace.Topology{Ranks: 4, TP: 1, CP: 2, PP: 1}, opt)
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(out, "  %s %s: %d × %d, %s\n", balance, layout, plan.Ranks, plan.Microbatches,
					plan.Placement)
				if i == 0 && balance == millrace.BalanceFSDP && packing == millrace.BestFit {
					for _, a := range plan.Assignments {
						fmt.Fprintf(out, "    %d/%d row %d at %d: %c%d %d+%d\n", a.Rank, a.Microbatch, a.Row, a.Start,
							'a'+a.Source, a.Ordinal, a.Offset, a.Length)
					}
				}
			}
		}
	}
}
