package planner_test

import (
	"math/rand/v2"
	"testing"

	"millrace"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/plannertest"
	"millrace/orchestrator/planner/progress"
)

// The notes of offers, as package sources/read/filter has them.
const (
	tooLong = 1 << 30
	missing = 1 << 31
)

// someNoted gives documents random notes. Documents without a field are refused, as their loaders offer them.
func someNoted(rng *rand.Rand, c *plannertest.Corpus) {
	notes := map[millrace.SampleID]uint64{}
	for s := range c.Docs {
		clear(notes)
		for d := range c.Docs[s] {
			meta := &c.Docs[s][d]
			bits, known := notes[meta.ID]
			if !known && rng.IntN(3) == 0 {
				bits = tooLong
				if rng.IntN(2) == 0 && d < len(c.Docs[s])-1 {
					bits = planner.OwnFilter | missing
				}
			}
			notes[meta.ID] = bits
			meta.Refused = bits
		}
	}
}

// TestCountsAreThoseOfTheDocumentsBegun: whatever is packed, carried or drawn again, a state counts the notes of the
// documents before its cursors, each once. Deltas and texts of states keep the counts.
func TestCountsAreThoseOfTheDocumentsBegun(t *testing.T) {
	counted := progress.Counts{}
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 43))
		spec := plannertest.RandomSpec(t, rng, 1+rng.IntN(3))
		spec.Skips = nil
		c := plannertest.RandomCorpus(rng, len(spec.Sources), 120, spec.SequenceLength)
		c.SomeInPieces(rng, spec)
		someNoted(rng, c)
		run, _, err := plannertest.Collect(t, spec, progress.New(len(spec.Sources)), plannertest.NewShy(c, seed), 0)
		if err != nil && len(run) == 0 {
			continue
		}
		before, differ := progress.New(len(spec.Sources)), planner.NewDiffer(spec)
		for i := range run {
			after := &run[i].After
			delta, err := differ.Diff(before, *after, run[i].Legs...)
			if err != nil {
				t.Fatalf("seed %d step %d: %v", seed, i, err)
			}
			if err := planner.NewDiffer(spec).Apply(&before, delta); err != nil || !before.Equal(*after) {
				t.Fatalf("seed %d step %d: the delta leads to %s, want %s: %v", seed, i, before, after, err)
			}
			if back, err := progress.Parse(after.Compact()); err != nil || !back.Equal(*after) {
				t.Fatalf("seed %d step %d: the text of %s comes back as %s: %v", seed, i, after, back, err)
			}
			for s := range after.Sources {
				src, want := &after.Sources[s], progress.Counts{}
				for o := range src.Ordinal {
					if meta, _ := c.Peek(s, o); meta.Offset == 0 {
						want.Add(meta.Refused)
					}
				}
				if meta, _ := c.Peek(s, src.Ordinal); src.Offset > 0 && meta.Offset == 0 {
					want.Add(meta.Refused)
				}
				if src.Counts != want {
					t.Fatalf("seed %d step %d source %d counts %+v, want %+v", seed, i, s, src.Counts, want)
				}
				counted.Missing, counted.TooLong = counted.Missing+want.Missing, counted.TooLong+want.TooLong
			}
		}
	}
	if counted.Missing < 1000 || counted.TooLong < 1000 {
		t.Fatalf("only %+v were counted", counted)
	}
}

// TestASkipCountsNothing: the documents that a skip leaves out are in no count.
func TestASkipCountsNothing(t *testing.T) {
	spec := plannertest.NewSpec(t, 8, 2, "1")
	spec.Skips = []planner.Skip{{From: 1, To: 3}}
	c := &plannertest.Corpus{Docs: [][]millrace.SampleMeta{nil}, Epochs: []uint64{1}}
	for d := range 12 {
		doc := plannertest.Document(d, 8)
		doc.Refused = tooLong
		c.Docs[0] = append(c.Docs[0], doc)
	}
	run, _, err := plannertest.Collect(t, spec, progress.New(1), c, 0)
	if err != nil || len(run) == 0 {
		t.Fatal(len(run), err)
	}
	last := run[len(run)-1].After.Sources[0]
	if last.Ordinal != 12 || last.Counts.TooLong != last.Samples || last.Samples != 8 {
		t.Fatalf("after %d ordinals and %d samples, %d are counted", last.Ordinal, last.Samples, last.Counts.TooLong)
	}
}
