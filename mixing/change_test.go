package mixing

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// randomMilestones draws entries from a place on; those at 0 begin without a ramp.
func randomMilestones(t *testing.T, rng *rand.Rand, sources int, from uint64) []Milestone {
	t.Helper()
	var out []Milestone
	for range 1 + rng.IntN(4) {
		k := Milestone{From: Point{Count: from}}
		if from > 0 && rng.IntN(2) == 0 {
			k.Ramp, k.Over = Ramp(1+rng.IntN(2)), Point{Count: 1 + rng.Uint64N(30)}
		}
		for range sources {
			w, err := ParseWeight(fmt.Sprintf("0.%d", rng.IntN(100)))
			if err != nil {
				t.Fatal(err)
			}
			k.Weights = append(k.Weights, w)
		}
		k.Weights[rng.IntN(sources)] = Weight{digits: 1}
		out, from = append(out, k), from+1+rng.Uint64N(25)
	}
	return out
}

func TestChangedScheduleIsOldBeforeAndNewAfter(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		old, err := NewSchedule(3, randomMilestones(t, rng, 3, 0))
		if err != nil {
			t.Fatal(err)
		}
		at := rng.Uint64N(60)
		change := randomMilestones(t, rng, 3, at)
		now, err := old.With(change)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		again, err := now.With(change)
		if err != nil {
			t.Fatal(err)
		}
		for step := range uint64(120) {
			if step < at && !slices.Equal(now.At(step, 0), old.At(step, 0)) {
				t.Fatalf("seed %d: a change at %d moved step %d", seed, at, step)
			}
			if !slices.Equal(now.At(step, 0), again.At(step, 0)) {
				t.Fatalf("seed %d: made twice, the change at %d gives another mixture at %d", seed, at, step)
			}
		}
		// A ramp begins at the weights before it. Without a ramp the new weights hold at once.
		var want Proportions
		if change[0].Ramp != RampNone {
			early, err := NewSchedule(3,
				slices.DeleteFunc(old.Milestones(), func(k Milestone) bool { return k.From.Count >= at }))
			if err != nil {
				t.Fatal(err)
			}
			want = early.At(at, 0)
		} else {
			if want, err = Proportion(change[0].Weights); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(now.At(at, 0), want) {
			t.Fatalf("seed %d: the change at %d begins at %d, want %d", seed, at, now.At(at, 0), want)
		}
	}
}

func TestScheduleSinceAPlaceIsTheScheduleFromThere(t *testing.T) {
	shorter := 0
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 2))
		s, err := NewSchedule(3, randomMilestones(t, rng, 3, 0))
		if err != nil {
			t.Fatal(err)
		}
		at := rng.Uint64N(100)
		since := s.Since(at, 0)
		shorter += len(s.given) - len(since.given)
		for step := at; step < at+100; step++ {
			if !slices.Equal(s.At(step, 0), since.At(step, 0)) {
				t.Fatalf("seed %d: since %d, step %d has %d, want %d", seed, at, step, since.At(step, 0), s.At(step, 0))
			}
		}
		if len(since.given) > 1 && since.given[1].From.Count <= at && since.Running(at, 0) == 0 &&
			since.given[1].Ramp == RampNone {
			t.Fatalf("seed %d: since %d it holds an entry that is over: %v", seed, at, since.given)
		}
	}
	if shorter == 0 {
		t.Error("nothing was ever left out")
	}
}

func TestBillionthsOfAnEntryAreItsWeights(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 4))
		k := randomMilestones(t, rng, 1+rng.IntN(6), 0)[0]
		weights, err := Billionths(k.Weights)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Proportion(weights)
		if err != nil {
			t.Fatal(err)
		}
		s, err := NewSchedule(len(weights), []Milestone{k})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range s.At(0, 0) {
			if gap := int64(got[i] - want); gap > wholeParts>>29 || gap < -(wholeParts>>29) ||
				(got[i] == 0) != (want == 0) {
				t.Fatalf("seed %d: %d, want %d", seed, got, s.At(0, 0))
			}
		}
	}
	if weights, err := Billionths([]Weight{{digits: 1}, {digits: 1, exponent: -30}}); err != nil ||
		weights[1].IsZero() {
		t.Errorf("a positive part became %v, %v", weights, err)
	}
}
