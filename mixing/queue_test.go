package mixing

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// nextOf sets the charges of all sources' next segments and returns the source to draw from.
func nextOf(a *Apportioner, sizes []int64) int {
	for i, size := range sizes[:len(a.accounts)] {
		a.SetSize(i, size)
	}
	return a.Next()
}

// linearNext looks at every source, and returns how far the one it draws has covered its segment: by theta of it, by
// more than nothing, or not at all.
func linearNext(a *Apportioner) (source, covered int) {
	best, bestWait, bestShare := -1, int64(1<<62), int64(1)
	for i, account := range a.accounts {
		size, share := account.size, account.share
		if size <= 0 || share == 0 {
			if size == 0 && share > 0 {
				return i, 0
			}
			continue
		}
		deficit := a.deficit(i) - a.centre
		wait := size*(One-a.theta) - deficit
		if deficit+(share-a.theta)*size >= 0 && sooner(wait, share, bestWait, bestShare) != 0 {
			best, bestWait, bestShare = i, wait, share
		}
	}
	if best >= 0 {
		return best, 0
	}
	bestAhead := false
	for i, account := range a.accounts {
		size, share := account.size, account.share
		if size < 0 || share == 0 {
			continue
		}
		deficit := a.deficit(i) - a.centre
		isAhead := deficit+share*size <= 0
		wait := size*(One-a.theta) - deficit
		if isAhead {
			wait = -deficit - share*size
		}
		if best < 0 || bestAhead && !isAhead || isAhead == bestAhead && sooner(wait, share, bestWait, bestShare) != 0 {
			best, bestWait, bestShare, bestAhead = i, wait, share, isAhead
		}
	}
	if bestAhead {
		return best, 2
	}
	return best, 1
}

// TestNextOfManySources: with many sources, Next draws exactly as a look at every source would. So it does across
// milestones, ramps, sources that are switched off, leave, are withheld or hold empty segments, and after restores.
func TestNextOfManySources(t *testing.T) {
	for _, sources := range []int{1, 4, few, few + 1, 40, 306, 1000, 4096} {
		t.Run(fmt.Sprint(sources), func(t *testing.T) {
			var sum [3]int
			for seed := range uint64(12) {
				for i, n := range manySources(t, sources, seed) {
					sum[i] += n
				}
			}
			t.Logf("draws by cover: %v", sum)
			if sources > few && sources < 1000 && (sum[0] == 0 || sum[1] == 0) {
				t.Errorf("draws by cover are %v: the scenes miss one", sum)
			}
		})
	}
}

// manySources compares the draws of one scene and counts them by cover.
func manySources(t *testing.T, sources int, seed uint64) (draws [3]int) {
	c := newScene(seed)
	c.sources, c.zeros, c.ramp = sources, seed%3 == 0, seed%2 == 1
	c.milestones, c.leave = []int{0, 60, 400}[seed%3], []int{0, 50}[seed%2]
	placements := 2000
	if sources > 1000 {
		placements = 400
	}
	placed := 0
	compare := func(of string, a *Apportioner, got int) int {
		want, cover := linearNext(a)
		if got != want {
			t.Fatalf("seed %d, placement %d, %s: draws %d, want %d", seed, placed, of, got, want)
		}
		draws[cover]++
		return got
	}
	c.play(placements, func(a *Apportioner, sizes []int64, chosen int, _ []uint32) {
		compare("the scene", a, chosen)
		if c.rng.IntN(20) == 0 { // a source withheld, or one whose next segment is empty
			i := c.rng.IntN(sources)
			a.SetSize(i, int64(-c.rng.IntN(2)))
			compare("with a source withheld or free", a, a.Next())
			a.SetSize(i, sizes[i])
			compare("with the source back", a, a.Next())
		}
		if placed%97 == 5 {
			restored, err := RestoreApportioner(a.State())
			if err != nil {
				t.Fatal(err)
			}
			for of, b := range map[string]*Apportioner{"restored": restored, "clone": a.Clone()} {
				nextOf(b, sizes)
				for range 30 {
					if i := compare(of, b, b.Next()); i >= 0 {
						b.Place(i, b.accounts[i].size)
						b.SetSize(i, 1+c.rng.Int64N(c.longest))
					}
				}
			}
		}
		placed++
	})
	return draws
}

func BenchmarkNext(b *testing.B) {
	for _, sources := range []int{3, 4, 12, 64, 306, 1000} {
		for _, longest := range []int64{1, 2048} {
			b.Run(fmt.Sprintf("sources=%d/longest=%d", sources, longest), func(b *testing.B) {
				c := &scene{rng: rand.New(rand.NewPCG(1, 1)), sources: sources, longest: longest}
				lengths := make([]int64, 1<<12)
				for i := range lengths {
					lengths[i] = 1 + c.rng.Int64N(longest)
				}
				w := make(Proportions, sources)
				for i := range w {
					w[i] = 1 + c.rng.Uint64N(1000)
				}
				a := NewApportioner(sources)
				a.SetShares(w.Shares(nil))
				sizes := slices.Clone(lengths[:sources])
				nextOf(a, sizes)
				n := 0
				for b.Loop() {
					i := a.Next()
					a.Place(i, sizes[i])
					sizes[i] = lengths[n&(len(lengths)-1)]
					a.SetSize(i, sizes[i])
					n++
				}
			})
		}
	}
}
