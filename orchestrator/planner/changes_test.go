package planner_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"millrace"
	"millrace/bench/plan/workload"
	"millrace/mixing"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/plannertest"
	"millrace/orchestrator/planner/progress"
)

// TestDeliveredMixtureAcrossChanges: with carry: auto and weights that change on the way, the distance of a source's
// delivered tokens from its target is at most its distance when drawn and all tokens that wait, which were drawn under
// earlier weights. Fewer than four steps of tokens wait. A skip adds at most the tokens that waited before and after
// it.
func TestDeliveredMixtureAcrossChanges(t *testing.T) {
	const seqlen, steps = 256, 160
	worst, settled, skipped := 0.0, 0.0, 0.0
	for seed := range uint64(24) {
		rng := rand.New(rand.NewPCG(seed, 31))
		sources, batch := 2+rng.IntN(6), 8<<rng.IntN(3)
		spec, err := workload.Spec(seqlen, batch, make1(sources)...)
		if err != nil {
			t.Fatal(err)
		}
		spec.Carry = planner.AutoCarry
		spec.Schedule, _ = changing(t, rng, sources, steps/2)
		if seed%2 == 1 {
			spec.Skips = []planner.Skip{{From: 20, To: 24}, {From: 70, To: 73}}
		}
		offers := workload.NewCorpus(randomLengths(t, rng, seqlen), 20_000, sources)
		selector, err := planner.NewSelector(spec, progress.New(sources))
		if err != nil {
			t.Fatal(err)
		}
		sels, err := workload.Advance(selector, offers, steps)
		if err != nil {
			t.Fatal(err)
		}
		lag, before, apart := make([]float64, sources), 0.0, 0.0
		for i := range sels {
			sel := &sels[i]
			waits := float64(progress.LengthOf(sel.After.Carried))
			if waits >= float64(4*seqlen*batch) {
				t.Errorf("seed %d: %.0f tokens wait after step %d", seed, waits, i)
			}
			if step := millrace.Step(i); len(spec.Skips) > 0 && (step == 20 || step == 70) {
				apart += before + waits + float64(seqlen*batch)
			}
			before = waits
			for s, src := range sel.Stats.Sources {
				lag[s] += float64(src.Share)/mixing.One*float64(sel.Stats.Tokens) - float64(src.Tokens)
				drawn := math.Abs(float64(sel.After.Sources[s].Deficit)) / mixing.One
				off := math.Abs(lag[s])
				if off > drawn+waits+apart+1 {
					t.Errorf("seed %d, step %d: source %d is %.0f tokens off, drawn %.0f off, %.0f wait", seed, i, s,
						off, drawn, waits)
				}
				switch off /= seqlen; {
				case len(spec.Skips) > 0:
					skipped = max(skipped, off)
				default:
					worst = max(worst, off)
					if i == len(sels)-1 {
						settled = max(settled, off)
					}
				}
			}
		}
	}
	t.Logf("%.2f sequences off at the worst, %.2f long after the last change; %.2f with skips", worst, settled, skipped)
}

func make1(n int) (out []string) {
	for range n {
		out = append(out, "1")
	}
	return out
}

// changing returns a schedule with other random weights every few steps, until a step.
func changing(t *testing.T, rng *rand.Rand, sources, until int) (*mixing.Schedule, int) {
	t.Helper()
	var list []mixing.Milestone
	for step := 0; step < until; step += 1 + rng.IntN(20) {
		weights := make([]string, sources)
		for i := range weights {
			weights[i] = fmt.Sprint(1 + rng.IntN(3)*rng.IntN(40))
		}
		list = append(list, mixing.Milestone{
			From: mixing.Point{Measure: mixing.Steps, Count: uint64(step)}, Weights: plannertest.Weights(t, weights...),
		})
	}
	return plannertest.Schedule(t, list...), len(list)
}
