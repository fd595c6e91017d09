package mixing

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// worstDeviation plays scenes and returns the largest deviation from exact targets, computed apart from the
// Apportioner, in longest segments.
func worstDeviation(t *testing.T, seeds uint64, placements int, make func(seed uint64) *scene) float64 {
	t.Helper()
	worst := 0.0
	for seed := range seeds {
		c := make(seed)
		targets, placed := slices.Repeat([]Target{{}}, c.sources), slices.Repeat([]int64{0}, c.sources)
		c.play(placements, func(a *Apportioner, sizes []int64, chosen int, shares []uint32) {
			if chosen < 0 {
				if slices.Max(shares) > 0 {
					t.Fatalf("seed %d: there is no source to draw", seed)
				}
				return
			}
			for i, s := range shares {
				targets[i] = targets[i].Plus(s, sizes[chosen])
			}
			placed[chosen] += sizes[chosen]
			gap, _ := deviation(placed, targets)
			worst = max(worst, float64(gap)/One/float64(c.longest))
		})
	}
	return worst
}

func TestBoundsOfSamples(t *testing.T) {
	samples := func(c scene) func(uint64) *scene {
		return func(seed uint64) *scene {
			next := newScene(seed)
			next.longest = 1
			next.milestones, next.ramp, next.zeros, next.leave = c.milestones, c.ramp, c.zeros, c.leave
			return next
		}
	}
	for _, c := range []struct {
		name  string
		scene scene
		bound float64
	}{
		{"constant", scene{}, 1},
		{"a milestone every 500", scene{milestones: 500}, 2},
		{"a milestone every 20", scene{milestones: 20}, 2},
		{"ramps", scene{milestones: 100, ramp: true}, 2},
		{"milestones that switch off", scene{milestones: 200, zeros: true}, 2},
		{"exhaustion", scene{leave: 50}, 2},
		{"all of it", scene{milestones: 200, ramp: true, zeros: true, leave: 100}, 2},
	} {
		worst := worstDeviation(t, 150, 2000, samples(c.scene))
		t.Logf("%s: %.4f samples", c.name, worst)
		if worst >= c.bound {
			t.Errorf("%s: deviation %.4f, bound %.0f", c.name, worst, c.bound)
		}
	}
}

func TestBoundsOfTokens(t *testing.T) {
	tokens := func(c scene) func(uint64) *scene {
		return func(seed uint64) *scene {
			next := newScene(seed)
			next.longest = []int64{7, 2048, 1 << 21}[seed%3]
			next.milestones, next.ramp, next.zeros, next.leave = c.milestones, c.ramp, c.zeros, c.leave
			return next
		}
	}
	for _, c := range []struct {
		name  string
		scene scene
		bound float64 // in longest segments
	}{
		{"constant", scene{}, 1},
		{"a milestone every 500", scene{milestones: 500}, 2},
		{"a milestone every 20", scene{milestones: 20}, 2},
		{"ramps", scene{milestones: 100, ramp: true}, 2},
		{"milestones that switch off", scene{milestones: 200, zeros: true}, 2},
		{"exhaustion", scene{leave: 50}, 2},
		{"all of it", scene{milestones: 200, ramp: true, zeros: true, leave: 100}, 2},
	} {
		worst := worstDeviation(t, 150, 2000, tokens(c.scene))
		t.Logf("%s: %.4f longest segments", c.name, worst)
		if worst > c.bound {
			t.Errorf("%s: deviation %.4f, bound %.0f", c.name, worst, c.bound)
		}
	}
}

// TestSamplesExhaustively: every weight vector of up to five small integers keeps Tijdeman's 1 - 1/(2m-2), up to the
// rounding of theta and shares. It plays a whole period and the start of the next.
func TestSamplesExhaustively(t *testing.T) {
	var weights []uint64
	var rise func(least uint64)
	rise = func(least uint64) {
		if len(weights) > 0 {
			requireTijdeman(t, weights)
		}
		if len(weights) == 5 {
			return
		}
		for w := least; w <= 7; w++ {
			weights = append(weights, w)
			rise(w)
			weights = weights[:len(weights)-1]
		}
	}
	rise(1)
}

func requireTijdeman(t *testing.T, weights []uint64) {
	t.Helper()
	sum := uint64(0)
	for _, w := range weights {
		sum += w
	}
	shares := divide(weights, sum)
	a, sizes := NewApportioner(len(weights)), slices.Repeat([]int64{1}, len(weights))
	a.SetShares(shares)
	bound := int64(0)
	if len(weights) > 1 {
		bound = One - One/int64(2*len(weights)-2)
	}
	targets, placed := make([]Target, len(weights)), make([]int64, len(weights))
	for n := range sum + 3 {
		i := nextOf(a, sizes)
		a.Place(i, 1)
		placed[i]++
		for j, s := range shares {
			targets[j] = targets[j].Plus(s, 1)
		}
		if gap, _ := deviation(placed, targets); gap > bound+16 {
			t.Fatalf("weights %d: deviation %d/%d after %d, bound %d", weights, gap, One, n+1, bound)
		}
	}
}

// TestLargestApportionment: with the largest sizes that the comment of account allows, deficits still add up to 0 and
// stay within the longest segment.
func TestLargestApportionment(t *testing.T) {
	const sources, longest = 4096, 1 << 21
	rng := rand.New(rand.NewPCG(3, 3))
	for _, heavy := range []uint64{1, 1 << 20} {
		p := make(Proportions, sources)
		for i := range p {
			p[i] = 1 + rng.Uint64N(1000)
		}
		p[sources/2] = heavy
		a, sizes := NewApportioner(sources), slices.Repeat([]int64{longest}, sources)
		a.SetShares(p.Shares(nil))
		for range 3000 {
			i := nextOf(a, sizes)
			a.Place(i, sizes[i])
		}
		sum := int64(0)
		for i, s := range a.State() {
			sum += s.Deficit
			if s.Deficit > longest*One || s.Deficit <= -longest*One {
				t.Fatalf("source %d: deficit %d", i, s.Deficit)
			}
		}
		if sum != 0 {
			t.Fatalf("deficits add up to %d", sum)
		}
	}
}

// TestAdversarialMilestones: an adversary sees every draw, raises the sources that are furthest behind and drops the
// others. No rule without foresight stays below one sample here. The deviation must grow no faster than the cup game's
// logarithm.
func TestAdversarialMilestones(t *testing.T) {
	for _, sources := range []int{4, 16, 64, 256} {
		a, sizes := NewApportioner(sources), slices.Repeat([]int64{1}, sources)
		behind := make([]int, sources)
		for i := range behind {
			behind[i] = i
		}
		worst := int64(0)
		for len(behind) > 1 {
			p := make(Proportions, sources)
			for i := range p {
				p[i] = 1 // all keep a share, so the centre stays
			}
			for _, i := range behind {
				p[i] = 1 << 40
			}
			a.SetShares(p.Shares(nil))
			for range max(len(behind)/2, 1) {
				i := nextOf(a, sizes)
				a.Place(i, 1)
			}
			state := a.State()
			slices.SortFunc(behind, func(i, j int) int { return int(state[j].Deficit>>10 - state[i].Deficit>>10) })
			behind = behind[:len(behind)/2]
			worst = max(worst, state[behind[0]].Deficit)
		}
		harmonic := 0.0
		for i := 1; i <= sources; i++ {
			harmonic += 1 / float64(i)
		}
		t.Logf("%d sources: %.2f samples, H = %.2f", sources, float64(worst)/One, harmonic)
		if float64(worst)/One > harmonic {
			t.Errorf("%d sources: %.2f samples behind, more than %.2f", sources, float64(worst)/One, harmonic)
		}
	}
}

func TestTargetIsExact(t *testing.T) {
	target, placed := Target{}, int64(0)
	for range 1000 {
		target = target.Plus(One/3, 1<<40)
		placed += 1 << 40 / 3
	}
	// One/3 is (One-1)/3, so each charge adds (2^70 - 2^40)/3 parts and placing takes (2^40-1)/3 * 2^30 of them away.
	if got, want := target.deficit(placed), int64(1000)*((1<<30-1<<40)/3); got != want {
		t.Errorf("deficit %d, want %d", got, want)
	}
	targets := []Target{{Whole: 3}, {Whole: 2, Parts: 7}, {Whole: 3}}
	if gap, source := deviation([]int64{1, 5, 0}, targets); gap != 3*One ||
		source != 2 {
		t.Errorf("deviation %d of source %d", gap, source)
	}
	if gap, source := deviation(nil, nil); gap != 0 || source != -1 {
		t.Errorf("no sources: %d, %d", gap, source)
	}
}
