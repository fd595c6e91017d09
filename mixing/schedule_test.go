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

func stepMilestone(t testing.TB, from uint64, weights string, ramp Ramp, over uint64) Milestone {
	return Milestone{
		From:    Point{Steps, from},
		Weights: mustWeights(t, strings.Fields(weights)...),
		Ramp:    ramp,
		Over:    Point{Steps, over},
	}
}

func mustSchedule(t testing.TB, milestones ...Milestone) *Schedule {
	t.Helper()
	s, err := NewSchedule(len(milestones[0].Weights), milestones)
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
	ramped := mustSchedule(t, stepMilestone(t, 0, "0.6 0.3 0.1", RampNone, 0),
		stepMilestone(t, 500, "3 4 3", RampLinear, 200), stepMilestone(t, 1000, "0 0 1", RampNone, 0))
	broken := mustSchedule(t, stepMilestone(t, 0, "1 0", RampNone, 0), stepMilestone(t, 10, "0 1", RampLinear, 100),
		stepMilestone(t, 60, "1 0", RampLinear, 10))
	cosine := mustSchedule(t, stepMilestone(t, 0, "1 0", RampNone, 0), stepMilestone(t, 0+1, "0 1", RampCosine, 6))
	for _, c := range []struct {
		schedule *Schedule
		step     uint64
		want     []int
	}{
		{ramped, 0, []int{600, 300, 100}}, {ramped, 499, []int{600, 300, 100}}, {ramped, 500, []int{600, 300, 100}},
		{ramped, 600, []int{450, 350, 200}},
		{ramped, 650, []int{375, 375, 250}}, {ramped, 700, []int{300, 400, 300}}, {ramped, 999, []int{300, 400, 300}},
		{ramped, 1000, []int{0, 0, 1000}}, {ramped, math.MaxUint64, []int{0, 0, 1000}},
		{broken, 59, []int{510, 490}}, {broken, 60, []int{500, 500}}, {broken, 65, []int{750, 250}},
		{broken, 70, []int{1000, 0}}, {broken, 200, []int{1000, 0}},
		{cosine, 1, []int{1000, 0}}, {cosine, 2, []int{933, 67}}, {cosine, 3, []int{750, 250}},
		{cosine, 4, []int{500, 500}}, {cosine, 5, []int{250, 750}}, {cosine, 6, []int{67, 933}},
		{cosine, 7, []int{0, 1000}},
	} {
		if got := permille(c.schedule.At(c.step, 12345)); !slices.Equal(got, c.want) {
			t.Errorf("step %d: %d, want %d", c.step, got, c.want)
		}
	}
}

func TestScheduleCountsTokens(t *testing.T) {
	milestones := []Milestone{stepMilestone(t, 0, "1 0", RampNone, 0), stepMilestone(t, 1000, "0 1", RampLinear, 1000)}
	for i := range milestones {
		milestones[i].From.Measure, milestones[i].Over.Measure = Tokens, Tokens
	}
	milestones[0].Over = Point{}
	s := mustSchedule(t, milestones...)
	for tokens, want := range map[uint64][]int{0: {1000, 0}, 1000: {1000, 0}, 1300: {700, 300}, 2000: {0, 1000}} {
		if got := permille(s.At(77, tokens)); !slices.Equal(got, want) {
			t.Errorf("%d tokens: %d, want %d", tokens, got, want)
		}
	}
}

func TestScheduleRefuses(t *testing.T) {
	first := stepMilestone(t, 0, "1 1", RampNone, 0)
	tokens := Milestone{From: Point{Tokens, 5}, Weights: first.Weights}
	mixed := stepMilestone(t, 5, "1 1", RampLinear, 3)
	mixed.Over.Measure = Tokens
	for name, c := range map[string]struct {
		milestones []Milestone
		index      int
		field      string
	}{
		"empty":       {nil, 0, "from"},
		"not from 0":  {[]Milestone{stepMilestone(t, 1, "1 1", RampNone, 0)}, 0, "from"},
		"first ramps": {[]Milestone{stepMilestone(t, 0, "1 1", RampLinear, 5)}, 0, "ramp"},
		"not in order": {
			[]Milestone{first, stepMilestone(t, 9, "1 1", RampNone, 0), stepMilestone(t, 8, "1 1", RampNone, 0)}, 2,
			"from",
		},
		"twice":            {[]Milestone{first, first}, 1, "from"},
		"mixed measures":   {[]Milestone{first, tokens}, 1, "from"},
		"mixed over":       {[]Milestone{first, mixed}, 1, "over"},
		"no over":          {[]Milestone{first, stepMilestone(t, 5, "1 1", RampLinear, 0)}, 1, "over"},
		"long over":        {[]Milestone{first, stepMilestone(t, 5, "1 1", RampLinear, math.MaxUint64)}, 1, "over"},
		"over, no ramp":    {[]Milestone{first, stepMilestone(t, 5, "1 1", RampNone, 7)}, 1, "over"},
		"unknown ramp":     {[]Milestone{first, stepMilestone(t, 5, "1 1", rampEnd, 7)}, 1, "ramp"},
		"missing weight":   {[]Milestone{first, stepMilestone(t, 5, "1", RampNone, 0)}, 1, "weights"},
		"all-zero weights": {[]Milestone{first, stepMilestone(t, 5, "0 0", RampNone, 0)}, 1, "weights"},
	} {
		_, err := NewSchedule(2, c.milestones)
		var milestoneErr *MilestoneError
		if !errors.As(err, &milestoneErr) || milestoneErr.Milestone != c.index || milestoneErr.Field != c.field {
			t.Errorf("%s: %v, want entry %d, %s", name, err, c.index, c.field)
		}
		if name == "all-zero weights" && !errors.Is(err, ErrNoWeight) {
			t.Errorf("%v does not wrap ErrNoWeight", err)
		}
	}
}

func TestScheduleCanReceive(t *testing.T) {
	s := mustSchedule(t, stepMilestone(t, 0, "1 0 0", RampNone, 0), stepMilestone(t, 10, "0 1 0", RampLinear, 10),
		stepMilestone(t, 30, "1 0 0", RampNone, 0))
	for step, want := range map[uint64][]bool{
		0: {true, true, false}, 15: {true, true, false}, 25: {true, true, false}, 30: {true, false, false},
	} {
		if got := s.CanReceive(step, 0); !slices.Equal(got, want) {
			t.Errorf("step %d: %v, want %v", step, got, want)
		}
	}
}

// dumbAt is the formula of docs/mixing.md in rationals. It finds ramps that interrupt others by recursion.
func dumbAt(milestones []Milestone, k int, step int64, source int) *big.Rat {
	sum := new(big.Rat)
	for _, w := range milestones[k].Weights {
		sum.Add(sum, w.rat())
	}
	after := new(big.Rat).Quo(milestones[k].Weights[source].rat(), sum)
	done, over := step-int64(milestones[k].From.Count), int64(milestones[k].Over.Count)
	if done >= over {
		return after
	}
	before := dumbAt(milestones, k-1, int64(milestones[k].From.Count), source)
	after.Sub(after, before)
	after.Mul(after, big.NewRat(done, over))
	return after.Add(after, before)
}

func TestScheduleAgainstRationals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sources := rapid.IntRange(1, 5).Draw(t, "sources")
		var milestones []Milestone
		from := uint64(0)
		for range rapid.IntRange(1, 6).Draw(t, "milestones") {
			k := Milestone{From: Point{Steps, from}}
			for range sources {
				w, _ := ParseWeight(
					rapid.SampledFrom([]string{"0", "1", "0.3", "7", "1e-4", "2.5e3"}).Draw(t, "weight"),
				)
				k.Weights = append(k.Weights, w)
			}
			if from > 0 && rapid.Bool().Draw(t, "ramps") {
				k.Ramp, k.Over.Count = RampLinear, rapid.Uint64Range(1, 40).Draw(t, "over")
			}
			milestones = append(milestones, k)
			from += rapid.Uint64Range(1, 20).Draw(t, "gap")
		}
		s, err := NewSchedule(sources, milestones)
		if err != nil {
			if !errors.Is(err, ErrNoWeight) {
				t.Fatal(err)
			}
			return
		}
		for step := range from + 50 {
			k := len(milestones) - 1
			for milestones[k].From.Count > step {
				k--
			}
			for i, x := range s.At(step, 0) {
				want := dumbAt(milestones, k, int64(step), i)
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
	for _, r := range Ramps() {
		if got, err := ParseRamp(r.String()); err != nil || got != r {
			t.Errorf("%s is read back as %s, %v", r, got, err)
		}
	}
	if _, err := ParseRamp("quadratic"); err == nil {
		t.Error("an unknown ramp is accepted")
	}
}
