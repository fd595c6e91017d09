package mixing

import (
	"errors"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func stepKnot(t testing.TB, from uint64, weights string, ramp Ramp, over uint64) Knot {
	return Knot{From: Point{Steps, from}, Weights: mustWeights(t, strings.Fields(weights)...), Ramp: ramp, Over: Point{Steps, over}}
}

func mustSchedule(t testing.TB, knots ...Knot) *Schedule {
	t.Helper()
	s, err := NewSchedule(len(knots[0].Weights), knots)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// permille rounds proportions for reading.
func permille(p Proportions) []int {
	out := make([]int, len(p))
	for i, x := range p {
		out[i] = int((x>>20*1000 + 1<<41) >> 42)
	}
	return out
}

func TestScheduleTable(t *testing.T) {
	ramped := mustSchedule(t, stepKnot(t, 0, "0.6 0.3 0.1", RampNone, 0), stepKnot(t, 500, "3 4 3", RampLinear, 200), stepKnot(t, 1000, "0 0 1", RampNone, 0))
	broken := mustSchedule(t, stepKnot(t, 0, "1 0", RampNone, 0), stepKnot(t, 10, "0 1", RampLinear, 100), stepKnot(t, 60, "1 0", RampLinear, 10))
	cosine := mustSchedule(t, stepKnot(t, 0, "1 0", RampNone, 0), stepKnot(t, 0+1, "0 1", RampCosine, 6))
	for _, c := range []struct {
		schedule *Schedule
		step     uint64
		want     []int
	}{
		{ramped, 0, []int{600, 300, 100}}, {ramped, 499, []int{600, 300, 100}}, {ramped, 500, []int{600, 300, 100}}, {ramped, 600, []int{450, 350, 200}},
		{ramped, 650, []int{375, 375, 250}}, {ramped, 700, []int{300, 400, 300}}, {ramped, 999, []int{300, 400, 300}}, {ramped, 1000, []int{0, 0, 1000}}, {ramped, math.MaxUint64, []int{0, 0, 1000}},
		{broken, 59, []int{510, 490}}, {broken, 60, []int{500, 500}}, {broken, 65, []int{750, 250}}, {broken, 70, []int{1000, 0}}, {broken, 200, []int{1000, 0}},
		{cosine, 1, []int{1000, 0}}, {cosine, 2, []int{933, 67}}, {cosine, 3, []int{750, 250}}, {cosine, 4, []int{500, 500}}, {cosine, 5, []int{250, 750}}, {cosine, 6, []int{67, 933}}, {cosine, 7, []int{0, 1000}},
	} {
		if got := permille(c.schedule.At(c.step, 12345)); !slices.Equal(got, c.want) {
			t.Errorf("step %d: %d, want %d", c.step, got, c.want)
		}
	}
}

func TestScheduleCountsTokens(t *testing.T) {
	knots := []Knot{stepKnot(t, 0, "1 0", RampNone, 0), stepKnot(t, 1000, "0 1", RampLinear, 1000)}
	for i := range knots {
		knots[i].From.Measure, knots[i].Over.Measure = Tokens, Tokens
	}
	knots[0].Over = Point{}
	s := mustSchedule(t, knots...)
	for tokens, want := range map[uint64][]int{0: {1000, 0}, 1000: {1000, 0}, 1300: {700, 300}, 2000: {0, 1000}} {
		if got := permille(s.At(77, tokens)); !slices.Equal(got, want) {
			t.Errorf("%d tokens: %d, want %d", tokens, got, want)
		}
	}
}

func TestScheduleRefuses(t *testing.T) {
	first := stepKnot(t, 0, "1 1", RampNone, 0)
	tokens := Knot{From: Point{Tokens, 5}, Weights: first.Weights}
	mixed := stepKnot(t, 5, "1 1", RampLinear, 3)
	mixed.Over.Measure = Tokens
	for name, c := range map[string]struct {
		knots []Knot
		index int
		field string
	}{
		"empty":            {nil, 0, "from"},
		"not from 0":       {[]Knot{stepKnot(t, 1, "1 1", RampNone, 0)}, 0, "from"},
		"first ramps":      {[]Knot{stepKnot(t, 0, "1 1", RampLinear, 5)}, 0, "ramp"},
		"not in order":     {[]Knot{first, stepKnot(t, 9, "1 1", RampNone, 0), stepKnot(t, 8, "1 1", RampNone, 0)}, 2, "from"},
		"twice":            {[]Knot{first, first}, 1, "from"},
		"mixed measures":   {[]Knot{first, tokens}, 1, "from"},
		"mixed over":       {[]Knot{first, mixed}, 1, "over"},
		"no over":          {[]Knot{first, stepKnot(t, 5, "1 1", RampLinear, 0)}, 1, "over"},
		"long over":        {[]Knot{first, stepKnot(t, 5, "1 1", RampLinear, math.MaxUint64)}, 1, "over"},
		"over, no ramp":    {[]Knot{first, stepKnot(t, 5, "1 1", RampNone, 7)}, 1, "over"},
		"unknown ramp":     {[]Knot{first, stepKnot(t, 5, "1 1", RampCosine+1, 7)}, 1, "ramp"},
		"missing weight":   {[]Knot{first, stepKnot(t, 5, "1", RampNone, 0)}, 1, "weights"},
		"all-zero weights": {[]Knot{first, stepKnot(t, 5, "0 0", RampNone, 0)}, 1, "weights"},
	} {
		_, err := NewSchedule(2, c.knots)
		var knotErr *KnotError
		if !errors.As(err, &knotErr) || knotErr.Knot != c.index || knotErr.Field != c.field {
			t.Errorf("%s: %v, want entry %d, %s", name, err, c.index, c.field)
		}
		if name == "all-zero weights" && !errors.Is(err, ErrNoWeight) {
			t.Errorf("%v does not wrap ErrNoWeight", err)
		}
	}
}

func TestScheduleCanReceive(t *testing.T) {
	s := mustSchedule(t, stepKnot(t, 0, "1 0 0", RampNone, 0), stepKnot(t, 10, "0 1 0", RampLinear, 10), stepKnot(t, 30, "1 0 0", RampNone, 0))
	for step, want := range map[uint64][]bool{0: {true, true, false}, 15: {true, true, false}, 25: {true, true, false}, 30: {true, false, false}} {
		if got := s.CanReceive(step, 0); !slices.Equal(got, want) {
			t.Errorf("step %d: %v, want %v", step, got, want)
		}
	}
}

// Dumb version: the contract's formula in rationals, interrupted ramps found by recursion.
func dumbAt(knots []Knot, k int, step int64, source int) *big.Rat {
	sum := new(big.Rat)
	for _, w := range knots[k].Weights {
		sum.Add(sum, w.rat())
	}
	after := new(big.Rat).Quo(knots[k].Weights[source].rat(), sum)
	done, over := step-int64(knots[k].From.Count), int64(knots[k].Over.Count)
	if done >= over {
		return after
	}
	before := dumbAt(knots, k-1, int64(knots[k].From.Count), source)
	after.Sub(after, before)
	after.Mul(after, big.NewRat(done, over))
	return after.Add(after, before)
}

func TestScheduleAgainstRationals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sources := rapid.IntRange(1, 5).Draw(t, "sources")
		var knots []Knot
		from := uint64(0)
		for range rapid.IntRange(1, 6).Draw(t, "knots") {
			k := Knot{From: Point{Steps, from}}
			for range sources {
				w, _ := ParseWeight(rapid.SampledFrom([]string{"0", "1", "0.3", "7", "1e-4", "2.5e3"}).Draw(t, "weight"))
				k.Weights = append(k.Weights, w)
			}
			if from > 0 && rapid.Bool().Draw(t, "ramps") {
				k.Ramp, k.Over.Count = RampLinear, rapid.Uint64Range(1, 40).Draw(t, "over")
			}
			knots = append(knots, k)
			from += rapid.Uint64Range(1, 20).Draw(t, "gap")
		}
		s, err := NewSchedule(sources, knots)
		if err != nil {
			if !errors.Is(err, ErrNoWeight) {
				t.Fatal(err)
			}
			return
		}
		for step := range from + 50 {
			k := len(knots) - 1
			for knots[k].From.Count > step {
				k--
			}
			for i, x := range s.At(step, 0) {
				want := dumbAt(knots, k, int64(step), i)
				gap := new(big.Rat).Sub(new(big.Rat).SetFrac(new(big.Int).SetUint64(x), big.NewInt(wholeParts)), want)
				if gap.Abs(gap).Cmp(big.NewRat(8, wholeParts)) > 0 {
					t.Fatalf("step %d source %d: %d parts, want %s", step, i, x, want.FloatString(9))
				}
			}
		}
	})
}

func TestCosineWay(t *testing.T) {
	for _, over := range []uint64{1, 2, 3, 7, 200, 1e9, wholeParts} {
		for j := range uint64(200) {
			done := j * (over / 200)
			if over < 200 {
				done = j % over
			}
			got := float64(cosineWay(done, over)) / wholeParts
			want := (1 - math.Cos(math.Pi*float64(done)/float64(over))) / 2
			if math.Abs(got-want) > 1e-14 {
				t.Fatalf("way of %d/%d is %.17f, want %.17f", done, over, got, want)
			}
		}
	}
}

func TestRampWords(t *testing.T) {
	for _, r := range []Ramp{RampNone, RampLinear, RampCosine} {
		if got, err := ParseRamp(r.String()); err != nil || got != r {
			t.Errorf("%s is read back as %s, %v", r, got, err)
		}
	}
	if _, err := ParseRamp("quadratic"); err == nil {
		t.Error("an unknown ramp is accepted")
	}
}
