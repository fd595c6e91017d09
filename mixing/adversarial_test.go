package mixing

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// families are weights that are hard to apportion: parts that halve, that grow by the golden ratio, one heavy source
// beside many equal ones, nearly equal ones, and a heavy pair.
func families(sources int) map[string]Proportions {
	out := map[string]Proportions{}
	for _, name := range []string{"geometric", "fibonacci", "one heavy", "nearly equal", "two heavy"} {
		p := make(Proportions, sources)
		for i := range p {
			switch name {
			case "geometric":
				p[i] = 1 << max(40-i, 0)
			case "fibonacci":
				if p[i] = 1; i > 1 {
					p[i] = min(p[i-1]+p[i-2], 1<<50)
				}
			case "one heavy":
				if p[i] = 1; i == 0 {
					p[i] = uint64(2 * sources)
				}
			case "nearly equal":
				p[i] = 1_000_000 + uint64(i)
			case "two heavy":
				if p[i] = 1; i < 2 {
					p[i] = uint64(4*sources) + uint64(i)
				}
			}
		}
		out[name] = p
	}
	return out
}

// run plays placements and returns the largest deviation at any prefix from targets that are computed apart. sharesAt
// gives the shares in force from a placement on, nil if they stay. Every so many placements the apportioner is restored
// from its state, as in a resumed run.
func run(sources, placements int, sharesAt func(n int) []uint32, size func(source, n int) int64) int64 {
	a := NewApportioner(sources)
	placed, targets, sizes := make([]int64, sources), make([]Target, sources), make([]int64, sources)
	for i := range sizes {
		sizes[i] = size(i, 0)
	}
	var shares []uint32
	worst := int64(0)
	for n := range placements {
		if next := sharesAt(n); next != nil {
			shares = next
			a.SetShares(shares)
		}
		if n%97 == 96 {
			restored, err := RestoreApportioner(a.State())
			if err != nil {
				panic(err)
			}
			a = restored
		}
		i := nextOf(a, sizes)
		a.Place(i, sizes[i])
		placed[i] += sizes[i]
		for j, s := range shares {
			targets[j] = targets[j].Plus(s, sizes[i])
		}
		sizes[i] = size(i, n+1)
		gap, _ := deviation(placed, targets)
		worst = max(worst, gap)
	}
	return worst
}

// TestAdversarialWeights: at every prefix a sample mixture deviates by less than one, Tijdeman's 1 - 1/(2m-2). A token
// mixture deviates by at most twice the longest document. That holds for any weights, any lengths of the sources, and
// with restored states.
func TestAdversarialWeights(t *testing.T) {
	const longest = 4096
	rng := rand.New(rand.NewPCG(8, 8))
	lengths := map[string]func(source, n int) int64{
		"all long":           func(int, int) int64 { return longest },
		"one source is long": func(source, _ int) int64 { return []int64{longest, 1}[min(source, 1)] },
		"now long now short": func(_, n int) int64 { return []int64{longest, 1}[n%2] },
		"any":                func(int, int) int64 { return 1 + rng.Int64N(longest) },
	}
	worst := map[string]float64{}
	for _, sources := range []int{2, 3, 5, 16, 64} {
		for name, p := range families(sources) {
			shares := p.Shares(nil)
			constant := func(n int) []uint32 {
				if n == 0 {
					return shares
				}
				return nil
			}
			positive := 0
			for _, s := range shares {
				if s > 0 {
					positive++
				}
			}
			got := run(sources, 6000, constant, func(int, int) int64 { return 1 })
			if bound := One - One/int64(2*positive-2) + 16; got > bound {
				t.Errorf("%d sources, %s: %d parts of %d, bound %d", sources, name, got, One, bound)
			}
			worst["samples"] = max(worst["samples"], float64(got)/One)
			for kind, size := range lengths {
				got := float64(run(sources, 2500, constant, size)) / One / longest
				if worst["tokens"] = max(worst["tokens"], got); got > 2 {
					t.Errorf("%d sources, %s, %s: %.3f longest documents", sources, name, kind, got)
				}
			}
		}
	}
	t.Logf("worst: %.4f samples, %.4f longest documents", worst["samples"], worst["tokens"])
}

// TestAdversarialSchedules: milestones between such weights, at random places and at places that suit an adversary. No
// rule can keep one sample here (see TestNoRuleWithoutForesightKeepsOne); this one keeps two.
func TestAdversarialSchedules(t *testing.T) {
	worst := map[string]float64{}
	for _, sources := range []int{3, 8, 32} {
		all := families(sources)
		names := []string{"geometric", "fibonacci", "one heavy", "nearly equal", "two heavy"}
		for _, every := range []int{1, 2, sources / 2, sources, 50} {
			for seed := range uint64(4) {
				rng := rand.New(rand.NewPCG(seed, uint64(every)))
				milestones := func(n int) []uint32 {
					if n%max(every, 1) != 0 {
						return nil
					}
					p := slices.Clone(all[names[rng.IntN(len(names))]])
					rng.Shuffle(len(p), func(i, j int) { p[i], p[j] = p[j], p[i] })
					return p.Shares(nil)
				}
				samples := float64(run(sources, 3000, milestones, func(int, int) int64 { return 1 })) / One
				tokens := float64(
					run(sources, 3000, milestones, func(_, n int) int64 { return []int64{4096, 1, 700}[n%3] }),
				) / One / 4096
				worst["samples"], worst["tokens"] = max(worst["samples"], samples), max(worst["tokens"], tokens)
				if samples >= 2 || tokens > 2 {
					t.Errorf("%d sources, a milestone every %d: %.3f samples, %.3f longest documents", sources, every,
						samples, tokens)
				}
			}
		}
	}
	t.Logf("worst: %.4f samples, %.4f longest documents", worst["samples"], worst["tokens"])
}

// foresight is Tijdeman's rule with the shares of every draw known beforehand. It chooses among the sources whose
// target has covered theta of their next sample. It draws the source whose target is first to reach the end of that
// sample, less theta. It returns the largest deviation.
func foresight(shares [][]uint32) int64 {
	sources := len(shares[0])
	theta := One / int64(2*sources-2)
	target, placed := make([]int64, sources), make([]int64, sources)
	due := func(i, from int, reached int64) int {
		for n := from; n < len(shares); n++ {
			if reached += int64(shares[n][i]); reached >= (placed[i]+1)*One-theta {
				return n
			}
		}
		return len(shares)
	}
	worst := int64(0)
	for n, now := range shares {
		best, bestDue := -1, 0
		for i, s := range now {
			if target[i]+int64(s)-placed[i]*One < theta {
				continue
			}
			if d := due(i, n, target[i]); best < 0 || d < bestDue {
				best, bestDue = i, d
			}
		}
		placed[max(best, 0)]++
		for i, s := range now {
			target[i] += int64(s)
			worst = max(worst, target[i]-placed[i]*One, placed[i]*One-target[i])
		}
	}
	return worst
}

// TestNoRuleWithoutForesightKeepsOne: after half of 2^k equal sources were drawn, a milestone gives all weight to the
// others, and so on. At the end more than one sample is owed to the last one, by any rule without knowledge of later
// milestones. No rule of a run can have it: a milestone is at a step, and the lengths of the documents decide the
// number of draws before that step. With that knowledge the deviation stays below one on the same schedule.
func TestNoRuleWithoutForesightKeepsOne(t *testing.T) {
	const sources = 64
	a, sizes := NewApportioner(sources), slices.Repeat([]int64{1}, sources)
	left := make([]int, sources)
	for i := range left {
		left[i] = i
	}
	var schedule [][]uint32
	worst := int64(0)
	for len(left) > 1 {
		p := make(Proportions, sources)
		for i := range p {
			p[i] = 1 // the least, so that all stay in the mixture
		}
		for _, i := range left {
			p[i] = 1 << 40
		}
		shares := p.Shares(nil)
		a.SetShares(shares)
		for range len(left) / 2 {
			schedule = append(schedule, shares)
			i := nextOf(a, sizes)
			a.Place(i, 1)
			left = slices.DeleteFunc(left, func(j int) bool { return j == i })
		}
		for _, s := range a.State() {
			worst = max(worst, s.Deficit)
		}
	}
	knowing := foresight(schedule)
	t.Logf("without foresight %.3f samples, with it %.3f", float64(worst)/One, float64(knowing)/One)
	if worst < One || knowing >= One {
		t.Errorf("without foresight %d parts, with it %d, of %d", worst, knowing, One)
	}
}
