package planner_test

import (
	"math/rand/v2"
	"testing"

	"millrace"
	"millrace/mixing"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/plannertest"
	"millrace/orchestrator/planner/progress"
)

// TestDrawnTokensAreDelivered: at every end of a run, each source has delivered all tokens up to its cursor, or they
// wait. Nothing waits if the sources end the run. Filters refuse documents, sources end by every rule, and weights fall
// to 0.
func TestDrawnTokensAreDelivered(t *testing.T) {
	ends := map[planner.Reason]int{}
	cut := 0
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 61))
		spec := plannertest.RandomSpec(t, rng, 1+rng.IntN(4))
		if rng.IntN(2) == 0 {
			spec.Packing, spec.Carry = millrace.BestFit, planner.AutoCarry
		}
		c := filteredCorpus(rng, spec)
		rules := []millrace.OnExhausted{millrace.Renormalize, millrace.Renormalize, millrace.StopRun, millrace.Repeat}
		for s := range spec.Sources {
			rule := rules[rng.IntN(len(rules))]
			if spec.Sources[s].OnExhausted = rule; rule == millrace.Repeat {
				c.Epochs[s] = 0
			}
		}
		if n := len(spec.Sources); n > 1 {
			all, last := make([]string, n), make([]string, n)
			for s := range all {
				all[s], last[s] = "1", "1"
			}
			last[rng.IntN(n)] = "0"
			spec.Schedule = plannertest.Schedule(t,
				mixing.Milestone{Weights: plannertest.Weights(t, all...)},
				mixing.Milestone{From: mixing.Point{Count: 4}, Weights: plannertest.Weights(t, last...)})
		}
		spec.StopSteps = 60
		steps, out, err := plannertest.Collect(t, spec, progress.New(len(spec.Sources)), plannertest.NewShy(c, seed), 0)
		if err != nil || len(steps) == 0 {
			t.Fatalf("seed %d: %d steps, %v", seed, len(steps), err)
		}
		ends[out.Reason]++
		end := steps[len(steps)-1].After
		if out.Reason != planner.StepsReached && len(end.Carried) > 0 {
			t.Fatalf("seed %d: %d segments wait at the end of the sources", seed, len(end.Carried))
		}
		if end.Done != (progress.Done{}) { // the steps inside a window have not drawn yet, as far as a state says
			continue
		}
		cut += checkDrawn(t, seed, spec, c, steps)
	}
	if ends[planner.SourcesThrough] < 10 || ends[planner.SourceStopped] < 10 || ends[planner.StepsReached] < 10 ||
		cut < 10 {
		t.Fatalf("runs ended by %v, %d sources inside a document", ends, cut)
	}
}

// TestRestOfADocumentIsDrawnWithoutShares: the weight of the only source that is left falls to 0 inside its document.
// Concat packing draws that document to its end, although no source has a share. The tokens are nobody's deficit, so
// each state is one that a run goes on from, and deltas lead to it.
func TestRestOfADocumentIsDrawnWithoutShares(t *testing.T) {
	for _, window := range []int{1, 4} {
		spec := plannertest.NewSpec(t, 8, 2, "1", "1")
		spec.Packing, spec.Window = millrace.Concat, window
		spec.Schedule = plannertest.Schedule(t,
			mixing.Milestone{Weights: plannertest.Weights(t, "1", "1")},
			mixing.Milestone{From: mixing.Point{Count: 2}, Weights: plannertest.Weights(t, "0", "1")})
		c := &plannertest.Corpus{
			Docs:   [][]millrace.SampleMeta{{plannertest.Document(1, 100)}, {plannertest.Document(1, 5)}},
			Epochs: []uint64{1, 1},
		}
		steps, out, err := plannertest.Collect(t, spec, progress.New(2), c, 0)
		if err != nil || out.Reason != planner.SourcesThrough || len(steps) != 7 {
			t.Fatalf("window %d: %d steps, %+v, %v", window, len(steps), out, err)
		}
		checkDrawn(t, 0, spec, c, steps)
		differ, before, apart := planner.NewDiffer(spec), progress.New(2), 0
		for i := range steps {
			after := steps[i].After
			if err := after.Validate(2); err != nil {
				t.Errorf("window %d: no run goes on after step %d: %v", window, i, err)
			}
			delta, err := differ.Diff(before, after, steps[i].Legs...)
			if err != nil || differ.Apply(&before, delta) != nil {
				t.Errorf("window %d: the delta of step %d: %v", window, i, err)
			}
			rest, _, err := plannertest.Collect(t, spec, after, c, 0)
			if err != nil || len(rest) != len(steps)-i-1 {
				t.Errorf("window %d: %d steps follow step %d, %v", window, len(rest), i, err)
			}
			if after.Sources[0].Deficit != 0 {
				apart++
			}
		}
		if end := steps[len(steps)-1].After; end.Tokens != 105 || apart == 0 {
			t.Errorf("window %d: %d tokens are placed, %d states have deficits", window, end.Tokens, apart)
		}
	}
}

// filteredCorpus returns a corpus of which filters refuse a third of the documents, but no source's last one.
func filteredCorpus(rng *rand.Rand, spec *planner.Spec) *plannertest.Corpus {
	c := plannertest.RandomCorpus(rng, len(spec.Sources), 200, spec.SequenceLength)
	c.SomeInPieces(rng, spec)
	for s := range c.Docs {
		for d := range c.Docs[s][:len(c.Docs[s])-1] {
			if rng.IntN(3) == 0 {
				c.Docs[s][d].Refused = planner.OwnFilter
			}
		}
	}
	return c
}

// checkDrawn compares the tokens that steps placed, and those that wait after them, with the documents up to each
// source's cursor. It returns the number of cursors inside a document.
func checkDrawn(
	t *testing.T, seed uint64, spec *planner.Spec, c *plannertest.Corpus, steps []planner.Selection,
) (cut int) {
	t.Helper()
	end, held := steps[len(steps)-1].After, map[place]int{}
	hold := func(source uint32, ordinal millrace.Ordinal, offset, length uint32) {
		for n := range length {
			held[place{source, ordinal, offset + n}]++
		}
	}
	for i := range steps {
		for _, seg := range steps[i].Segments {
			hold(seg.Source, seg.Ordinal, seg.Offset, seg.Length)
		}
	}
	for _, w := range end.Carried {
		hold(w.Source, w.Ordinal, w.Offset, w.Length)
	}
	want := 0
	for s, src := range end.Sources {
		for o := range src.Ordinal + 1 {
			meta, _ := c.Peek(s, o)
			stop := meta.Lengths.Tokens
			if piece := spec.Sources[s].PieceTokens; piece > 0 {
				stop = min(stop, meta.Offset+piece)
			}
			if o == src.Ordinal {
				if stop = src.Offset; stop > 0 {
					cut++
				}
			} else if meta.Rejected || meta.Refused&planner.OwnFilter != 0 {
				continue
			}
			for n := meta.Offset; n < stop; n++ {
				if want++; held[place{uint32(s), o, n}] != 1 {
					t.Fatalf("seed %d: token %d of document %s of source %d is there %d times, drawn up to %s+%d",
						seed, n, o, s, held[place{uint32(s), o, n}], src.Ordinal, src.Offset)
				}
			}
		}
	}
	if want != len(held) {
		t.Fatalf("seed %d: %d tokens are drawn, %d placed or waiting", seed, want, len(held))
	}
	return cut
}
