package planner_test

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"millrace"
	"millrace/mixing"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/plannertest"
	"millrace/orchestrator/planner/progress"
)

// TestRefusedDocumentsAreEmptyOnes: a document that its source's own filter refuses is planned like one without tokens,
// under any setting. Bits that no stage uses change nothing.
func TestRefusedDocumentsAreEmptyOnes(t *testing.T) {
	refused := 0
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 41))
		spec := plannertest.RandomSpec(t, rng, 1+rng.IntN(3))
		c := plannertest.RandomCorpus(rng, len(spec.Sources), 120, spec.SequenceLength)
		c.SomeInPieces(rng, spec)
		dumb := &plannertest.Corpus{Epochs: c.Epochs}
		for s := range c.Docs {
			dumb.Docs = append(dumb.Docs, slices.Clone(c.Docs[s]))
			for d := range c.Docs[s][:len(c.Docs[s])-1] {
				meta := &c.Docs[s][d]
				if meta.Refused = rng.Uint64N(8) << 1; rng.IntN(3) == 0 {
					meta.Refused |= planner.OwnFilter
					dumb.Docs[s][d].Lengths.Tokens = 0
				}
			}
		}
		got, out, err := plannertest.Collect(t, spec, progress.New(len(spec.Sources)), plannertest.NewShy(c, seed), 0)
		want, wantOut, wantErr := plannertest.Collect(t, spec, progress.New(len(spec.Sources)), dumb, 0)
		for _, steps := range [][]planner.Selection{got, want} {
			for i := range steps {
				for s := range steps[i].Stats.Sources {
					st := &steps[i].Stats.Sources[s]
					if refused += st.Refused; &steps[0] == &want[0] && st.Refused > 0 {
						t.Fatalf("seed %d: %d documents without a filter are refused", seed, st.Refused)
					}
					st.Empty, st.Refused = st.Empty+st.Refused, 0
				}
				for r := range steps[i].Rejects {
					steps[i].Rejects[r].Refused, steps[i].Rejects[r].Lengths.Tokens = 0, 0
				}
			}
		}
		if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(out, wantOut) || !sameError(err, wantErr) {
			t.Fatalf("seed %d: %d steps, %+v, %v; with empty documents %d, %+v, %v", seed, len(got), out, err,
				len(want), wantOut, wantErr)
		}
		if len(got) > 0 {
			for i, src := range got[len(got)-1].After.Sources {
				if passed := uint64(src.Ordinal) - src.Samples; src.Offset == 0 && passed != src.PassedOver() {
					t.Errorf("seed %d, source %d: %d passed over, said %d", seed, i, passed, src.PassedOver())
				}
			}
		}
	}
	if refused < 1000 {
		t.Fatalf("only %d documents were refused", refused)
	}
}

// TestStagesHaveFilters: from its stage on, no document begins that a stage's filter refuses. Before it all documents
// begin. A document that has begun goes on.
func TestStagesHaveFilters(t *testing.T) {
	const begins = 5
	before, gone := 0, 0
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 42))
		spec := plannertest.RandomSpec(t, rng, 1+rng.IntN(3))
		spec.Carry = 0 // carried segments were drawn in the stage before
		c := plannertest.RandomCorpus(rng, len(spec.Sources), 400, spec.SequenceLength)
		for s := range c.Docs {
			for d := range c.Docs[s] {
				c.Docs[s][d].Refused = rng.Uint64N(2) << 1
			}
		}
		spec.Carry = 0 // segments carried into the stage belong to the steps before
		spec.Stages = []planner.Stage{
			{
				From:           mixing.Point{Count: begins},
				SequenceLength: spec.SequenceLength,
				GlobalBatch:    spec.GlobalBatch,
				Packing:        spec.Packing,
				Filters:        2,
			},
		}
		steps, _, err := plannertest.Collect(t, spec, progress.New(len(spec.Sources)), plannertest.NewShy(c, seed), 0)
		if err != nil {
			t.Fatal(err)
		}
		for i := range steps {
			for _, seg := range steps[i].Segments {
				meta, _ := c.Peek(int(seg.Source), seg.Ordinal)
				switch {
				case meta.Refused == 0:
				case steps[i].Step < begins:
					before++
				case seg.Offset == 0:
					t.Fatalf("seed %d: step %s begins document %s of source %d, which its stage refuses", seed,
						steps[i].Step, seg.Ordinal, seg.Source)
				default:
					gone++
				}
			}
		}
	}
	if before == 0 || gone == 0 {
		t.Fatalf("%d refused documents before their stage, %d pieces of such after", before, gone)
	}
}

// TestAFilterThatRefusesAllIsNamed: the error names the filter, whether the source repeats or ends.
func TestAFilterThatRefusesAllIsNamed(t *testing.T) {
	for _, on := range []millrace.OnExhausted{millrace.Repeat, millrace.Renormalize} {
		spec := plannertest.NewSpec(t, 64, 4, "1", "1")
		c := plannertest.RandomCorpus(rand.New(rand.NewPCG(1, 1)), 2, 50, 64)
		for d := range c.Docs[1] {
			c.Docs[1][d].Refused = planner.OwnFilter
		}
		if spec.Sources[1].Filters, spec.Sources[1].OnExhausted = "quality > 2", on; on == millrace.Repeat {
			c.Epochs[1] = 0
		}
		_, _, err := plannertest.Collect(t, spec, progress.New(2), c, 0)
		var empty *planner.ExhaustedError
		if !errors.As(err, &empty) ||
			!strings.Contains(
				err.Error(),
				`source "b" holds no document with a token that its filters keep: quality > 2`,
			) {
			t.Errorf("%s: %v", on, err)
		}
	}
}
