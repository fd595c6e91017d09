package planner_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"millrace"
	"millrace/mixing"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/plannertest"
	"millrace/orchestrator/planner/progress"
)

// above is a corpus that fails the test if a document below a state's floor is asked for: loaders start at the floor.
type above struct {
	planner.Offers
	t     *testing.T
	floor []millrace.Ordinal
}

func newAbove(t *testing.T, o planner.Offers, st progress.State) above {
	a := above{o, t, make([]millrace.Ordinal, len(st.Sources))}
	for i := range a.floor {
		a.floor[i] = st.Floor(i)
	}
	return a
}

func (a above) Peek(source int, ordinal millrace.Ordinal) (millrace.SampleMeta, planner.Availability) {
	if ordinal < a.floor[source] {
		a.t.Fatalf("asked for ordinal %s of source %d, whose floor is %s", ordinal, source, a.floor[source])
	}
	return a.Offers.Peek(source, ordinal)
}

// TestCarryIsBounded: no more segments wait than allowed, and none longer; floors only rise; placed and carried
// segments are the drawn ones.
func TestCarryIsBounded(t *testing.T) {
	waited := 0
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 51))
		spec := plannertest.RandomSpec(t, rng, 1+rng.IntN(3))
		spec.Packing, spec.Carry = millrace.BestFit, []int{1, 5, 40, 512, planner.AutoCarry}[rng.IntN(5)]
		if seed%2 == 0 {
			spec.Schedule = restless(t, rng, len(spec.Sources))
		}
		c := plannertest.RandomCorpus(rng, len(spec.Sources), 300, spec.SequenceLength)
		c.SomeInPieces(rng, spec)
		from := progress.NewOf(uint32(2+seed/2%2), len(spec.Sources)) // every second one of an earlier planner
		steps, _, err := plannertest.Collect(t, spec, from, c, 0)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		placed, before := uint64(0), from
		for i := range steps {
			after := steps[i].After
			placed += steps[i].Stats.Tokens
			drawn := after.Done.Tokens
			for s := range after.Sources {
				drawn += after.Sources[s].Tokens
				if after.Floor(s) < before.Floor(s) {
					t.Fatalf("seed %d, step %d: the floor of source %d falls from %s to %s", seed, i, s,
						before.Floor(s), after.Floor(s))
				}
			}
			if after.Tokens != placed || placed+progress.LengthOf(after.Carried) != drawn ||
				spec.Carry != planner.AutoCarry && len(after.Carried) > spec.Carry ||
				len(after.Carried) > millrace.MostCarried {
				t.Fatalf("seed %d, step %d: %d tokens are placed, %d drawn: %s", seed, i, placed, drawn, after)
			}
			for _, w := range after.Carried {
				if int(w.Age) > max(progress.PoolWaits, spec.Window) {
					t.Fatalf("seed %d, step %d: %+v waits too long", seed, i, w)
				}
			}
			waited += len(after.Carried)
			before = after
		}
		if n := len(steps[len(steps)-1].After.Carried); n > 0 {
			t.Fatalf("seed %d: %d segments wait at the end", seed, n)
		}
	}
	if waited < 1000 {
		t.Errorf("only %d segments waited in all", waited)
	}
}

// TestOnlyWindowsAndCarryMoveSegments: without window and carry no segment moves, and with them none moves further than
// they allow.
func TestOnlyWindowsAndCarryMoveSegments(t *testing.T) {
	for _, c := range []struct{ window, carry, least, most int }{
		{1, 0, 0, 0}, {4, 0, 2, 3}, {1, 64, 1, progress.PoolWaits}, {4, 64, 3, progress.PoolWaits + 3},
	} {
		spec := plannertest.NewSpec(t, 64, 8, "1", "2")
		spec.Window, spec.Carry = c.window, c.carry
		steps, _, err := plannertest.Collect(t, spec, progress.New(2),
			plannertest.RandomCorpus(rand.New(rand.NewPCG(9, 9)), 2, 900, 64), 40)
		if err != nil {
			t.Fatal(err)
		}
		most := 0
		for i := range steps {
			st := &steps[i].Stats
			most = max(most, st.Most)
			if uint64(st.Most) > st.Moved || st.Moved > uint64(st.Most*len(steps[i].Segments)) {
				t.Fatalf("window %d, carry %d, step %d: %d segments moved %d steps, the furthest %d", c.window, c.carry,
					i, len(steps[i].Segments), st.Moved, st.Most)
			}
		}
		if most < c.least || most > c.most {
			t.Errorf("window %d, carry %d: moved by %d steps, want %d to %d", c.window, c.carry, most, c.least, c.most)
		}
	}
}

// TestWindowsEndWhereTheyMust: windows end at absolute multiples, at jumps of the mixture, and at both ends of a ramp.
func TestWindowsEndWhereTheyMust(t *testing.T) {
	for _, measure := range []mixing.Measure{mixing.Steps, mixing.Tokens} {
		at := func(count uint64) mixing.Point {
			return mixing.Point{Measure: measure, Count: count * []uint64{1, 64}[measure]}
		}
		spec := plannertest.NewSpec(t, 8, 8, "1", "1")
		spec.Window = 4
		spec.Schedule = plannertest.Schedule(
			t,
			mixing.Milestone{From: at(0), Weights: plannertest.Weights(t, "1", "1")},
			mixing.Milestone{From: at(6), Weights: plannertest.Weights(t, "1", "3")},
			mixing.Milestone{
				From:    at(9),
				Weights: plannertest.Weights(t, "2", "1"),
				Ramp:    mixing.RampLinear,
				Over:    at(9),
			},
		)
		docs := make([]millrace.SampleMeta, 4000)
		for i := range docs {
			docs[i] = plannertest.Document(i, 8)
		}
		c := &plannertest.Corpus{Docs: [][]millrace.SampleMeta{docs, docs}, Epochs: make([]uint64, 2)}
		steps, _, err := plannertest.Collect(t, spec, progress.New(2), c, 26)
		if err != nil {
			t.Fatal(err)
		}
		begins := map[int]bool{}
		for i := range steps {
			if steps[i].After.Done == (progress.Done{}) {
				begins[i+1] = true
			}
		}
		for i, want := range map[int]bool{
			4: true, 5: false, 6: true, 7: false, 8: true, 9: true, 10: false, 12: true, 16: true, 18: true, 19: false,
			20: true, 22: false, 24: true,
		} {
			if begins[i] != want {
				t.Errorf("%s: a window begins at step %d: %v", measure, i, begins[i])
			}
		}
	}
}

// TestWindowMovesSamplesByLessThanItsLength: every document of a source in a window was drawn after all those in
// earlier windows.
func TestWindowMovesSamplesByLessThanItsLength(t *testing.T) {
	spec, c := plannertest.Pretrain(t, 2048, 64, 3000)
	spec.Window = 4
	steps, _, err := plannertest.Collect(t, spec, progress.New(4), c, 24)
	if err != nil {
		t.Fatal(err)
	}
	type cursor struct {
		ordinal millrace.Ordinal
		offset  uint32
	}
	before, reached, moved := [4]cursor{}, [4]cursor{}, 0
	for i := range steps {
		for _, s := range steps[i].Segments {
			at := cursor{s.Ordinal, s.Offset}
			less := func(a, b cursor) bool {
				return a.ordinal < b.ordinal || a.ordinal == b.ordinal && a.offset < b.offset
			}
			if less(at, before[s.Source]) {
				t.Fatalf("%+v of step %d was drawn by the window before", s, i)
			}
			if less(at, reached[s.Source]) {
				moved++
			} else {
				reached[s.Source] = at
			}
		}
		if steps[i].After.Done == (progress.Done{}) {
			if i%4 != 3 {
				t.Fatalf("a window ends with step %d", i)
			}
			before = reached
		}
	}
	if moved < 1000 {
		t.Errorf("only %d segments are in another order than they were drawn", moved)
	}
}

// TestAnotherWindow: a window that comes out differently is refused, whether its steps hold other tokens or it is too
// short.
func TestAnotherWindow(t *testing.T) {
	spec := plannertest.NewSpec(t, 16, 4, "1")
	spec.Window = 4
	docs := make([]millrace.SampleMeta, 40)
	for i := range docs {
		docs[i] = plannertest.Document(i, uint32(i%16+1))
	}
	c := &plannertest.Corpus{Docs: [][]millrace.SampleMeta{docs}, Epochs: []uint64{1}}
	steps, _, err := plannertest.Collect(t, spec, progress.New(1), c, 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range [][]millrace.SampleMeta{
		append([]millrace.SampleMeta{plannertest.Document(1, 3)}, docs[1:]...), docs[:3],
	} {
		_, _, err := plannertest.Collect(t, spec, steps[1].After,
			&plannertest.Corpus{Docs: [][]millrace.SampleMeta{other}, Epochs: []uint64{1}}, 0)
		if !errors.Is(err, millrace.ErrMismatch) || !strings.Contains(err.Error(), "the window from step 0 on") {
			t.Errorf("%d documents: %v", len(other), err)
		}
	}
}

// TestCarriedDocumentMayChange: a carried document that can no longer be read keeps its place; another document in its
// place is refused.
func TestCarriedDocumentMayChange(t *testing.T) {
	spec := plannertest.NewSpec(t, 10, 2, "1")
	spec.Carry = 4
	st := progress.New(1)
	st.Tokens, st.Sources[0] = 13, progress.Source{Ordinal: 3, Tokens: 20, Samples: 3}
	st.Carried = []progress.Carried{{Ordinal: 1, Length: 7, Age: 2}}
	for _, tt := range []struct {
		name string
		now  millrace.SampleMeta
		ok   bool
	}{
		{"the same", plannertest.Document(1, 7), true},
		{"unreadable", millrace.SampleMeta{Rejected: true}, true},
		{"shorter", plannertest.Document(1, 6), false},
		{"longer", plannertest.Document(1, 8), false},
	} {
		c := &plannertest.Corpus{
			Docs: [][]millrace.SampleMeta{
				{plannertest.Document(1, 6), tt.now, plannertest.Document(1, 7), plannertest.Document(1, 5)},
			},
			Epochs: []uint64{1},
		}
		steps, _, err := plannertest.Collect(t, spec, st, newAbove(t, c, st), 0)
		if tt.ok != (err == nil) || !tt.ok && !errors.Is(err, millrace.ErrMismatch) {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if tt.ok && (len(steps) != 1 || len(steps[0].Segments) != 2 || steps[0].Segments[0].Length != 7) {
			t.Errorf("%s: %+v", tt.name, steps)
		}
	}
}
