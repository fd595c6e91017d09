package mixing

import (
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
)

// dumbNext is the rule in Apportioner's comment in big integers and rationals, from deficits and shares only.
func dumbNext(state []Account, sizes []int64) int {
	sum, count := new(big.Int), int64(0)
	for _, s := range state {
		if s.Share > 0 {
			sum.Add(sum, big.NewInt(s.Deficit))
			count++
		}
	}
	if count == 0 {
		return -1
	}
	centre := new(big.Int).Div(sum, big.NewInt(count)) // Euclidean, so rounded down
	theta := int64(0)
	if count > 1 {
		theta = One / (2*count - 2)
	}
	parts := func(i int, size, factor, deficits int64) *big.Int { // size*factor + deficits*(deficit - centre)
		x := new(big.Int).Mul(big.NewInt(size), big.NewInt(factor))
		d := new(big.Int).Sub(big.NewInt(state[i].Deficit), centre)
		return x.Add(x, d.Mul(d, big.NewInt(deficits)))
	}
	first := func(eligible func(i int) bool, wait func(i int) *big.Int) int {
		best, bestWait := -1, new(big.Rat)
		for i, s := range state {
			if s.Share == 0 || sizes[i] < 0 || !eligible(i) {
				continue
			}
			w := new(big.Rat).SetFrac(wait(i), big.NewInt(int64(s.Share)))
			if best < 0 || w.Cmp(bestWait) < 0 {
				best, bestWait = i, w
			}
		}
		return best
	}
	for i, s := range state {
		if s.Share > 0 && sizes[i] == 0 {
			return i
		}
	}
	due := func(i int) *big.Int { return parts(i, sizes[i], One-theta, -1) }
	ahead := func(i int, theta int64) int { return parts(i, sizes[i], int64(state[i].Share)-theta, 1).Sign() }
	if i := first(func(i int) bool { return ahead(i, theta) >= 0 }, due); i >= 0 {
		return i
	}
	if i := first(func(i int) bool { return ahead(i, 0) > 0 }, due); i >= 0 {
		return i
	}
	return first(func(int) bool { return true },
		func(i int) *big.Int { return parts(i, sizes[i], -int64(state[i].Share), -1) })
}

// scene is a random life of an Apportioner: weights, milestones and ramps, segments of certain lengths, exhaustion.
type scene struct {
	rng        *rand.Rand
	sources    int
	longest    int64 // 1: samples
	milestones int   // a change of weights about every so many placements; 0: never
	ramp       bool  // weights also drift at every 8th placement
	zeros      bool  // milestones may switch sources off
	leave      int   // a source leaves about every so many placements; 0: never
}

func (c *scene) weights() []uint64 {
	w := make([]uint64, c.sources)
	a, b := uint64(1), uint64(1)
	shape := c.rng.IntN(6)
	for i := range w {
		switch shape {
		case 0: // one heavy, many equal
			w[i] = 1
			if i == 0 {
				w[i] = uint64(c.sources) * (1 + c.rng.Uint64N(20))
			}
		case 1: // geometric
			w[i] = 1 << (40 - min(i, 40))
		case 2: // Fibonacci
			w[i] = a
			if a, b = b, a+b; b > 1<<40 {
				a, b = 1, 1
			}
		case 3:
			w[i] = 1
		case 4:
			w[i] = 1 + c.rng.Uint64N(1000)
		case 5: // half and half
			w[i] = 1 + 1000*uint64(i%2)
		}
	}
	c.rng.Shuffle(len(w), func(i, j int) { w[i], w[j] = w[j], w[i] })
	if c.zeros {
		keep := c.rng.IntN(len(w))
		for i := range w {
			if i != keep && c.rng.IntN(3) == 0 {
				w[i] = 0
			}
		}
	}
	return w
}

// lengths returns a function that draws the lengths of the segments of each source.
func (c *scene) lengths() func(i int) int64 {
	if c.longest == 1 {
		return func(int) int64 { return 1 }
	}
	shape := c.rng.IntN(5)
	return func(i int) int64 {
		switch shape {
		case 0:
			return c.longest
		case 1:
			return 1 + c.rng.Int64N(c.longest)
		case 2: // tiny or longest
			return 1 + (c.longest-1)*int64(c.rng.IntN(8)/7)
		case 3: // each source its own
			return 1 + (c.longest-1)*int64(i%3)/2
		default: // skewed
			return 1 + c.longest>>c.rng.IntN(12)*9/10
		}
	}
}

// play runs the scene and calls after with every placement.
func (c *scene) play(placements int, after func(a *Apportioner, sizes []int64, chosen int, shares []uint32)) {
	a, length := NewApportioner(c.sources), c.lengths()
	active := slices.Repeat([]bool{true}, c.sources)
	mixture := func() Proportions {
		w := c.weights()
		whole := uint64(0)
		for _, x := range w {
			whole += x
		}
		p := make(Proportions, len(w))
		for i, x := range w {
			p[i] = x * (wholeParts / whole)
		}
		return p
	}
	before, target, now := mixture(), mixture(), mixture()
	left, rampStart := 0, 0
	shares := now.Shares(active)
	a.SetShares(shares)
	sizes := make([]int64, c.sources)
	for i := range sizes {
		sizes[i] = length(i)
	}
	for n := range placements {
		if c.milestones > 0 && c.rng.IntN(c.milestones) == 0 {
			before, target, rampStart = now, mixture(), n
			if !c.ramp {
				now = target
			}
			shares = now.Shares(active)
			a.SetShares(shares)
		}
		if c.ramp && n%8 == 0 && n > rampStart && n-rampStart <= 4*c.milestones {
			now = make(Proportions, c.sources)
			for i := range now {
				now[i] = blend(before[i], target[i], uint64(n-rampStart), uint64(4*c.milestones+1))
			}
			shares = now.Shares(active)
			a.SetShares(shares)
		}
		if c.leave > 0 && left < c.sources-1 && c.rng.IntN(c.leave) == 0 {
			gone := c.rng.IntN(c.sources)
			for !active[gone] {
				gone = (gone + 1) % c.sources
			}
			active[gone] = false
			sizes[gone] = -1
			left++
			a.Leave(gone)
			shares = now.Shares(active)
			a.SetShares(shares)
		}
		chosen := nextOf(a, sizes)
		after(a, sizes, chosen, shares)
		if chosen < 0 {
			continue
		}
		a.Place(chosen, sizes[chosen])
		sizes[chosen] = length(chosen)
	}
}

func newScene(seed uint64) *scene {
	rng := rand.New(rand.NewPCG(seed, 1))
	return &scene{rng: rng, sources: 1 + rng.IntN(41), longest: []int64{1, 7, 2048, 1 << 21}[rng.IntN(4)]}
}

func TestNextAgainstRationals(t *testing.T) {
	for seed := range uint64(150) {
		c := newScene(seed)
		c.milestones, c.ramp, c.zeros, c.leave = int(seed%4)*20, seed%2 == 1, seed%3 == 0, int(seed%5)*40
		c.play(150, func(a *Apportioner, sizes []int64, chosen int, _ []uint32) {
			if c.rng.IntN(10) == 0 { // a source withheld, and one whose next segment is empty
				other := slices.Clone(sizes)
				other[c.rng.IntN(len(other))] = int64(-c.rng.IntN(2))
				if got, want := nextOf(a, other), dumbNext(a.State(), other); got != want {
					t.Fatalf("seed %d: draws %d, want %d of %d", seed, got, want, other)
				}
			}
			if want := dumbNext(a.State(), sizes); chosen != want {
				t.Fatalf("seed %d: draws %d, want %d", seed, chosen, want)
			}
		})
	}
}

func TestStateGoesOnEqually(t *testing.T) {
	for seed := range uint64(40) {
		c := newScene(seed)
		c.milestones, c.zeros, c.leave = 30, true, 100
		drawn := map[string]int{}
		c.play(300, func(a *Apportioner, sizes []int64, chosen int, shares []uint32) {
			restored, err := RestoreApportioner(a.State())
			if err != nil {
				t.Fatal(err)
			}
			for name, b := range map[string]*Apportioner{"restored": restored, "clone": a.Clone()} {
				if got := nextOf(b, sizes); got != chosen {
					t.Fatalf("seed %d: the %s draws %d, not %d", seed, name, got, chosen)
				}
				for range 3 { // must not reach the original
					if i := nextOf(b, sizes); i >= 0 {
						b.Place(i, sizes[i])
						drawn[name]++
					}
				}
			}
			again := a.Clone()
			again.SetShares(shares)
			if !slices.Equal(again.State(), a.State()) || again.centre != a.centre {
				t.Fatalf("seed %d: equal shares again change the state", seed)
			}
		})
	}
}

func TestRestoreRefuses(t *testing.T) {
	for name, state := range map[string][]Account{
		"deficits": {{Deficit: 1, Share: One}},
		"shares":   {{Share: One - 1}},
		"left":     {{Share: One, Left: true}},
	} {
		if _, err := RestoreApportioner(state); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := RestoreApportioner(NewApportioner(3).State()); err != nil {
		t.Error(err)
	}
}

func TestNextWithoutASource(t *testing.T) {
	a := NewApportioner(3)
	if got := nextOf(a, []int64{1, 1, 1}); got != -1 {
		t.Errorf("without shares: draws %d", got)
	}
	a.SetShares([]uint32{One, 0, 0})
	if got := nextOf(a, []int64{-1, 1, 0}); got != -1 {
		t.Errorf("with the only share withheld: draws %d", got)
	}
	a.Leave(0)
	if got := nextOf(a, []int64{1, 1, 1}); got != -1 {
		t.Errorf("after all left: draws %d", got)
	}
	a.SetShares([]uint32{One / 2, One / 2, 0})
	if got := nextOf(a, []int64{1, 1, 1}); got != 1 {
		t.Errorf("with a share for one that left: draws %d", got)
	}
	if state := a.State(); state[0].Share != 0 || state[1].Share != One {
		t.Errorf("shares are %v", state)
	}
}

// TestPlaceReplays: planning the same draws again after a step was cut short gives the draws of an uninterrupted
// stream.
func TestPlaceReplays(t *testing.T) {
	a := NewApportioner(3)
	a.SetShares([]uint32{One / 2, One / 4, One / 4})
	sizes := []int64{5, 9, 2}
	var drawn []int
	before := a.Clone()
	for range 100 {
		i := nextOf(a, sizes)
		a.Place(i, sizes[i])
		drawn = append(drawn, i)
	}
	for _, i := range drawn[:60] {
		before.Place(i, sizes[i])
	}
	for n, want := range drawn[60:] {
		i := nextOf(before, sizes)
		if i != want {
			t.Fatalf("draw %d after the cut is %d, want %d", n, i, want)
		}
		before.Place(i, sizes[i])
	}
}

// TestApportionGolden: these draws are part of every checkpoint ever written. A change here needs a new planner
// version.
func TestApportionGolden(t *testing.T) {
	for _, g := range drawsGolden {
		shares, err := Normalise(mustWeights(t, g.weights...))
		if err != nil {
			t.Fatal(err)
		}
		a := NewApportioner(len(shares))
		a.SetShares(shares)
		sizes := make([]int64, len(shares))
		var got []byte
		for n := range len(g.draws) {
			for i := range sizes {
				sizes[i] = 1 + int64(splitMix(uint64(n/4*100+i))%uint64(g.longest))
			}
			if n == g.leaves {
				a.Leave(0)
			}
			i := nextOf(a, sizes)
			a.Place(i, sizes[i])
			got = append(got, byte('a'+i))
		}
		if string(got) != g.draws {
			t.Errorf("%v, longest %d:\ngot  %s\nwant %s", g.weights, g.longest, got, g.draws)
		}
	}
}

// TestChargesWithoutSharesMoveNothing: a charge while no source has a share leaves the deficits, which add up to 0, and
// the choices after it.
func TestChargesWithoutSharesMoveNothing(t *testing.T) {
	a := NewApportioner(3)
	a.Place(1, 9)
	a.SetShares([]uint32{One / 2, One / 4, One / 4})
	for i := range 3 {
		a.Place(i, int64(5+i))
	}
	want := a.State()
	for range 2 { // the restored one has no share in force either
		a.SetShares(make([]uint32, 3))
		a.Place(2, 11)
		for i, account := range a.State() {
			if account.Deficit != want[i].Deficit {
				t.Errorf("source %d has a deficit of %d, before the charge %d", i, account.Deficit, want[i].Deficit)
			}
		}
		restored, err := RestoreApportioner(a.State())
		if err != nil {
			t.Fatal(err)
		}
		a = restored
	}
}
