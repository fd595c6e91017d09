package share

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestAFixedFleetGetsItsStripesInTurn: the first assignment is the one that a fixed number of loaders always had.
func TestAFixedFleetGetsItsStripesInTurn(t *testing.T) {
	for sources := 1; sources <= 6; sources++ {
		for loaders := 1; loaders <= 12; loaders++ {
			var stripes []Stripe
			for source := range sources {
				for range max(1, (source+1)*loaders/sources-source*loaders/sources) {
					stripes = append(stripes, Stripe{Source: source, Work: 1})
				}
			}
			names := named(loaders)
			for i, owner := range Assign(stripes, names, 0) {
				if owner != names[i%loaders] {
					t.Fatalf("%d sources, %d loaders: stripe %d has %s", sources, loaders, i, owner)
				}
			}
		}
	}
}

func named(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("loader-%d", i))
	}
	return out
}

// walk tries every assignment.
func walk(stripes []Stripe, loaders []string, visit func(owners []string)) {
	owners := make([]string, len(stripes))
	var try func(i int)
	try = func(i int) {
		if i == len(stripes) {
			visit(owners)
			return
		}
		for _, name := range loaders {
			owners[i] = name
			try(i + 1)
		}
	}
	try(0)
}

// figures are the work and the resident bytes by loader, and the stripes that moved.
func figures(stripes []Stripe, owners []string) (work, held map[string]int64, moved int) {
	work, held = map[string]int64{}, map[string]int64{}
	seen := map[string]bool{}
	for i, st := range stripes {
		work[owners[i]] += st.Work
		if key := fmt.Sprint(owners[i], " ", st.Source); !seen[key] {
			seen[key] = true
			held[owners[i]] += st.Resident
		}
		if owners[i] != st.Owner {
			moved++
		}
	}
	return work, held, moved
}

// isLevel reports whether no stripe could move to a loader with less work and a move is worth its cost.
func isLevel(stripes []Stripe, loaders, owners []string) bool {
	work, _, _ := figures(stripes, owners)
	total, heaviest := int64(0), int64(0)
	for _, st := range stripes {
		total, heaviest = total+st.Work, max(heaviest, st.Work)
	}
	mean := total / int64(len(loaders))
	gap := min(mean/8, heaviest/2)
	for i, st := range stripes {
		for _, to := range loaders {
			from := work[owners[i]]
			if work[to]+st.Work+gap < from && (from > mean+gap || work[to] < mean/2) {
				return false
			}
		}
	}
	return true
}

func most(of map[string]int64) (most int64) {
	for _, n := range of {
		most = max(most, n)
	}
	return most
}

// drawn returns a random fleet, and stripes that the loaders have and that nobody has.
func drawn(rng *rand.Rand, equal bool) (stripes []Stripe, loaders []string) {
	loaders = named(1 + rng.IntN(4))
	owners := append([]string{"", "gone-7", "gone-8"}, loaders...)
	stripes = make([]Stripe, rng.IntN(7))
	work, resident := [7]int64{}, [7]int64{}
	for i := range work {
		if work[i] = 1; !equal {
			work[i], resident[i] = 1+rng.Int64N(100), rng.Int64N(60)
		}
	}
	for i := range stripes {
		source := i * 3 / 7
		stripes[i] = Stripe{Source: source, Owner: owners[rng.IntN(len(owners))], Work: work[source],
			Resident: resident[source]}
	}
	return stripes, loaders
}

func isSame(t *testing.T, stripes []Stripe, loaders, owners []string, memory int64) {
	t.Helper()
	again := slices.Clone(stripes)
	for i := range again {
		again[i].Owner = owners[i]
	}
	if got := Assign(again, loaders, memory); !slices.Equal(got, owners) {
		t.Fatalf("%v, then %v", owners, got)
	}
}

// TestSharesAreEqualAndFewStripesMove compares stripes of equal work with every assignment. A second call moves
// nothing.
func TestSharesAreEqualAndFewStripesMove(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		stripes, loaders := drawn(rng, true)
		got, want := Assign(stripes, loaders, 0), len(stripes)
		walk(stripes, loaders, func(owners []string) {
			if isLevel(stripes, loaders, owners) {
				_, _, moved := figures(stripes, owners)
				want = min(want, moved)
			}
		})
		if _, _, moved := figures(stripes, got); !isLevel(stripes, loaders, got) || moved != want {
			t.Fatalf("%v to %v: %v, %d moved, want %d", stripes, loaders, got, moved, want)
		}
		isSame(t, stripes, loaders, got, 0)
	}
}

// TestHeavyStripesAreShared compares stripes of different work with every assignment.
func TestHeavyStripesAreShared(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	worst, extra, sum, best := 0.0, map[int]int{}, 0.0, 0
	for range 300 {
		stripes, loaders := drawn(rng, false)
		got := Assign(stripes, loaders, 0)
		if !isLevel(stripes, loaders, got) {
			t.Fatalf("%v to %v: %v is not level", stripes, loaders, got)
		}
		least, fewest := int64(1<<60), len(stripes)
		walk(stripes, loaders, func(owners []string) {
			work, _, moved := figures(stripes, owners)
			least = min(least, most(work))
			if isLevel(stripes, loaders, owners) {
				fewest = min(fewest, moved)
			}
		})
		work, _, moved := figures(stripes, got)
		if high := most(work); high*4 > least*9 {
			t.Fatalf("%v to %v: %v has %d, the best is %d", stripes, loaders, got, high, least)
		} else if len(stripes) > 0 {
			worst = max(worst, float64(high)/float64(least))
			sum, best = sum+float64(high)/float64(least), best+1
		}
		if extra[moved-fewest]++; moved > fewest+1 {
			t.Fatalf("%v to %v: %v, %d moved, want %d", stripes, loaders, got, moved, fewest)
		}
		isSame(t, stripes, loaders, got, 0)
	}
	t.Logf("most work: %.3f of the best, at most %.3f; moves beyond the fewest: %v", sum/float64(best), worst, extra)
}

// many returns more sources than loaders, each with some stripes that nobody has, and a bound that they fit in any
// order.
func many(rng *rand.Rand, loaders, mostStripes int) (stripes []Stripe, memory int64) {
	total, largest := int64(0), int64(0)
	for source := range 3 * loaders {
		st := Stripe{Source: source, Work: 1 + rng.Int64N(1000), Resident: rng.Int64N(60)}
		for range 1 + rng.IntN(mostStripes) {
			stripes, total, largest = append(stripes, st), total+st.Resident, max(largest, st.Resident)
		}
	}
	return stripes, (total+int64(loaders)-1)/int64(loaders) + largest
}

// TestMemoryIsKept while stripes find room, and again after they lay where they do not fit.
func TestMemoryIsKept(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 500 {
		loaders := named(1 + rng.IntN(8))
		stripes, memory := many(rng, len(loaders), 3)
		got := Assign(stripes, loaders, memory)
		if _, held, _ := figures(stripes, got); most(held) > memory {
			t.Fatalf("%v to %v: %v holds %v of %d", stripes, loaders, got, held, memory)
		}
		isSame(t, stripes, loaders, got, memory)
		stripes, memory = many(rng, len(loaders), 1)
		for i := range stripes {
			stripes[i].Owner = loaders[rng.IntN(1+rng.IntN(len(loaders)))]
		}
		got = Assign(stripes, loaders, memory)
		if _, held, _ := figures(stripes, got); most(held) > memory {
			t.Fatalf("%v to %v: %v holds %v of %d", stripes, loaders, got, held, memory)
		}
		isSame(t, stripes, loaders, got, memory)
	}
}

// TestALoaderThatComesOrGoesMovesFew: the stripes of one that goes move, and a newcomer gets at most its part.
func TestALoaderThatComesOrGoesMovesFew(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	needed, moves := 0, 0
	for range 300 {
		n := 2 + rng.IntN(8)
		stripes, _ := many(rng, n, 3)
		was := Assign(stripes, named(n), 0)
		for i := range stripes {
			stripes[i].Owner = was[i]
		}
		change := func(loaders int, isNeeded func(was, now string) bool) {
			got := Assign(stripes, named(loaders), 0)
			for i := range got {
				if got[i] != was[i] {
					moves++
				}
				if isNeeded(was[i], got[i]) {
					needed++
				}
			}
		}
		change(n-1, func(was, _ string) bool { return was == named(n)[n-1] })
		change(n+1, func(_, now string) bool { return now == named(n + 1)[n] })
	}
	if t.Logf("%d stripes moved, %d of them to newcomers or from those that went", moves, needed); moves*4 > needed*5 {
		t.Errorf("%d stripes moved where %d were enough", moves, needed)
	}
}

// TestASourceKeepsManyLoaders: a loader that comes takes stripes of different sources.
func TestASourceKeepsManyLoaders(t *testing.T) {
	var stripes []Stripe
	for i := range 8 {
		stripes = append(stripes, Stripe{Source: i / 4, Work: 1})
	}
	for n := 1; n <= 4; n++ {
		counts := map[string]int{}
		for i, owner := range Assign(stripes, named(n), 0) {
			stripes[i].Owner = owner
			counts[fmt.Sprint(owner, stripes[i].Source)]++
		}
		for key, c := range counts {
			if c > 4/n+1 {
				t.Errorf("%d loaders: %s has %d stripes of it", n, key, c)
			}
		}
	}
	if out := Assign(stripes, nil, 0); slices.ContainsFunc(out, func(s string) bool { return s != "" }) {
		t.Errorf("without loaders: %v", out)
	}
}

func TestNamesAreOrderedByNumbers(t *testing.T) {
	want := []string{"loader-0", "loader-0-0", "loader-2-0", "loader-1", "loader-0-1", "loader-2-1", "loader-2",
		"x-02", "loader-10"}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, Compare)
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v", got)
	}
}
