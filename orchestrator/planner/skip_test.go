package planner_test

import (
	"math/rand/v2"
	"testing"

	"millrace"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/plannertest"
	"millrace/orchestrator/planner/progress"
)

// TestSkipPassesOverSteps: the documents of steps A to B are never delivered, and the later ones follow without a gap.
// The deficits go on from before the skip.
func TestSkipPassesOverSteps(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 5))
		spec := plannertest.RandomSpec(t, rng, 1+rng.IntN(4))
		c := plannertest.RandomCorpus(rng, len(spec.Sources), 100, spec.SequenceLength)
		c.SomeInPieces(rng, spec)
		for i := range c.Epochs {
			c.Epochs[i] = 0
		}
		const steps = 12
		if spec.Carry > 0 || spec.Window > 1 { // a plainer run then gives the skipped documents
			skipping := *spec
			skipping.Skips = []planner.Skip{{From: 3, To: 9}}
			got, _, err := plannertest.Collect(t, &skipping, progress.New(len(spec.Sources)),
				plannertest.NewShy(c, seed), steps)
			if err != nil {
				t.Fatal(err)
			}
			resumeEverywhere(t, &skipping, c, got)
			seen := map[place]bool{}
			for i := range got {
				checkStep(t, spec, &got[i])
				for _, s := range got[i].Segments {
					if at := (place{s.Source, s.Ordinal, s.Offset}); seen[at] {
						t.Fatalf("seed %d: %+v comes twice", seed, s)
					} else {
						seen[at] = true
					}
				}
			}
			spec.Carry = 0
		}
		spec.Window = 1
		plain, _, err := plannertest.Collect(t, spec, progress.New(len(spec.Sources)), c, steps)
		if err != nil {
			t.Fatal(err)
		}
		from := rng.IntN(5)
		to := from + 1 + rng.IntN(4)
		skipping := *spec
		skipping.Skips = []planner.Skip{{From: millrace.Step(from), To: millrace.Step(to)}}
		got, _, err := plannertest.Collect(t, &skipping, progress.New(len(spec.Sources)), plannertest.NewShy(c, seed),
			steps)
		if err != nil {
			t.Fatal(err)
		}
		for i := range from {
			if got[i].Content != plain[i].Content {
				t.Fatalf("seed %d: step %d differs before the skip", seed, i)
			}
		}
		landed := plain[to-1].After
		first := make([]place, len(spec.Sources))
		seen := make([]bool, len(spec.Sources))
		for i := from; i < steps; i++ {
			checkStep(t, spec, &got[i])
			for _, seg := range got[i].Segments {
				if !seen[seg.Source] || seg.Ordinal < first[seg.Source].ordinal {
					first[seg.Source], seen[seg.Source] = place{seg.Source, seg.Ordinal, seg.Offset}, true
				}
			}
		}
		for i, at := range landed.Sources {
			want := place{uint32(i), at.Ordinal, at.Offset}
			for { // documents without tokens are in no step
				meta, _ := c.Peek(i, want.ordinal)
				want.offset = max(want.offset, meta.Offset)
				if !meta.Rejected && meta.Lengths.Tokens > want.offset {
					break
				}
				want.ordinal, want.offset = want.ordinal+1, 0
			}
			if seen[i] && first[i] != want {
				t.Fatalf("seed %d: after the skip source %d begins at %+v, want %+v", seed, i, first[i], want)
			}
		}
		if got[from].After.Tokens != tokensBefore(got, from)+got[from].Stats.Tokens {
			t.Fatalf("seed %d: skipped documents count as placed", seed)
		}
		resumeEverywhere(t, &skipping, c, got)
	}
}

// TestSkipDiscardsWaitingSegments: no token of a skipped step is delivered, also if it waited before the skip. Segments
// that wait after the last skipped step are not lost.
func TestSkipDiscardsWaitingSegments(t *testing.T) {
	const from, to = 3, 7
	waited, stayed := 0, 0
	for seed := range uint64(24) {
		rng := rand.New(rand.NewPCG(seed, 7))
		spec := plannertest.RandomSpec(t, rng, 1+rng.IntN(4))
		spec.Packing, spec.Carry = millrace.BestFit, []int{planner.AutoCarry, 7, 60}[rng.IntN(3)]
		if seed%4 == 0 {
			spec.Packing = millrace.Bucketed
		}
		spec.Window = 1 // steps of a skip are drawn one by one
		c := plannertest.RandomCorpus(rng, len(spec.Sources), 2000, spec.SequenceLength)
		c.SomeInPieces(rng, spec)
		plain, _, err := plannertest.Collect(t, spec, progress.New(len(spec.Sources)), c, to)
		if err != nil || len(plain) < to {
			t.Fatalf("seed %d: %d steps, %v", seed, len(plain), err)
		}
		skipping := *spec
		skipping.Skips = []planner.Skip{{From: from, To: to}}
		skipping.Window = []int{1, 2, 4}[rng.IntN(3)]
		if skipping.Window > 1 {
			skipping.Skips[0].From, skipping.Skips[0].To = 0, to
		}
		begins := int(skipping.Skips[0].From)
		got, _, err := plannertest.Collect(
			t,
			&skipping,
			progress.New(len(spec.Sources)),
			plannertest.NewShy(c, seed),
			32,
		)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		resumeEverywhere(t, &skipping, c, got)
		delivered := map[place]bool{}
		for i := range got {
			for _, seg := range got[i].Segments {
				for n := range seg.Length {
					at := place{seg.Source, seg.Ordinal, seg.Offset + n}
					if delivered[at] {
						t.Fatalf("seed %d: %+v comes twice", seed, at)
					}
					delivered[at] = true
				}
			}
		}
		for i := begins; i < to; i++ {
			for _, seg := range plain[i].Segments {
				if delivered[place{seg.Source, seg.Ordinal, seg.Offset}] {
					t.Fatalf("seed %d: %+v of skipped step %d is delivered", seed, seg, i)
				}
			}
		}
		for _, w := range got[len(got)-1].After.Carried {
			for n := range w.Length {
				delivered[place{w.Source, w.Ordinal, w.Offset + n}] = true
			}
		}
		for _, w := range plain[to-1].After.Carried {
			for n := range w.Length {
				if !delivered[place{w.Source, w.Ordinal, w.Offset + n}] {
					t.Fatalf("seed %d: %+v waits after the skip and is lost", seed, w)
				}
			}
		}
		stayed += len(plain[to-1].After.Carried)
		if begins > 0 {
			waited += len(plain[begins-1].After.Carried)
		}
	}
	if waited < 100 || stayed < 100 {
		t.Fatalf("%d segments waited before a skip, %d after it", waited, stayed)
	}
}

func tokensBefore(steps []planner.Selection, i int) uint64 {
	if i == 0 {
		return 0
	}
	return steps[i-1].After.Tokens
}

// resumeEverywhere checks that the same steps follow from every state, and that the deltas lead there.
func resumeEverywhere(t *testing.T, spec *planner.Spec, o planner.Offers, steps []planner.Selection) {
	t.Helper()
	differ, at := planner.NewDiffer(spec), progress.New(len(spec.Sources))
	for i := range steps {
		delta, err := differ.Diff(at, steps[i].After, steps[i].Legs...)
		if err != nil {
			t.Fatal(err)
		}
		back := at.Clone()
		if err := planner.NewDiffer(spec).Apply(&back, delta); err != nil || !back.Equal(steps[i].After) {
			t.Fatalf("delta of step %d leads elsewhere: %v", i, err)
		}
		st, err := progress.Parse(at.Compact())
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := plannertest.Collect(t, spec, st, newAbove(t, o, st), 1)
		if err != nil || got[0].Content != steps[i].Content || !got[0].After.Equal(steps[i].After) {
			t.Fatalf("step %d differs when it is planned from its state: %v", i, err)
		}
		at = steps[i].After
	}
}

// TestSkipToTheEnd: if the sources end before the skip does, the run is over.
func TestSkipToTheEnd(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 6))
	spec := plannertest.RandomSpec(t, rng, 2)
	spec.Window, spec.Carry = 0, 0
	c := plannertest.RandomCorpus(rng, 2, 150, spec.SequenceLength)
	all, _, err := plannertest.Collect(t, spec, progress.New(2), c, 0)
	if err != nil || len(all) < 3 {
		t.Fatalf("%d steps, %v", len(all), err)
	}
	spec.Skips = []planner.Skip{{From: 1, To: millrace.Step(1 + len(all))}}
	got, out, err := plannertest.Collect(t, spec, progress.New(2), plannertest.NewShy(c, 3), 0)
	if err != nil || len(got) != 1 || out.Reason != planner.SourcesThrough || got[0].Content != all[0].Content {
		t.Fatalf("%d steps, %+v, %v", len(got), out, err)
	}
}
