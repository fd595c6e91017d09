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
					stripes = append(stripes, Stripe{Source: source})
				}
			}
			names := named(loaders)
			for i, owner := range Assign(stripes, names) {
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

// dumb returns the least number of stripes that have to move, by trying every balanced assignment.
func dumb(stripes []Stripe, loaders []string) int {
	best, counts := len(stripes)+1, map[string]int{}
	var try func(i, moved int)
	try = func(i, moved int) {
		if moved >= best {
			return
		}
		if i == len(stripes) {
			if isBalanced(counts, len(stripes), loaders) {
				best = moved
			}
			return
		}
		for _, name := range loaders {
			next := moved
			if stripes[i].Owner != name {
				next++
			}
			counts[name]++
			try(i+1, next)
			counts[name]--
		}
	}
	try(0, 0)
	return best
}

func isBalanced(counts map[string]int, stripes int, loaders []string) bool {
	for _, name := range loaders {
		if n := counts[name]; n < stripes/len(loaders) || n > (stripes+len(loaders)-1)/len(loaders) {
			return false
		}
	}
	return true
}

// TestSharesAreEqualAndFewStripesMove compares random changes with the dumb search. A second call moves nothing.
func TestSharesAreEqualAndFewStripesMove(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		loaders := named(1 + rng.IntN(4))
		owners := append([]string{"", "gone-7", "gone-8"}, loaders...)
		stripes := make([]Stripe, rng.IntN(7))
		for i := range stripes {
			stripes[i] = Stripe{Source: i * 3 / 7, Owner: owners[rng.IntN(len(owners))]}
		}
		got, counts, moved := Assign(stripes, loaders), map[string]int{}, 0
		for i, owner := range got {
			if counts[owner]++; owner != stripes[i].Owner {
				moved++
			}
		}
		if !isBalanced(counts, len(stripes), loaders) || moved != dumb(stripes, loaders) {
			t.Fatalf("%v to %v: %v, %d moved, want %d", stripes, loaders, got, moved, dumb(stripes, loaders))
		}
		for i := range stripes {
			stripes[i].Owner = got[i]
		}
		if again := Assign(stripes, loaders); !slices.Equal(again, got) {
			t.Fatalf("%v, then %v", got, again)
		}
	}
}

// TestASourceKeepsManyLoaders: a loader that comes takes stripes of different sources.
func TestASourceKeepsManyLoaders(t *testing.T) {
	var stripes []Stripe
	for i := range 8 {
		stripes = append(stripes, Stripe{Source: i / 4})
	}
	for n := 1; n <= 4; n++ {
		counts := map[string]int{}
		for i, owner := range Assign(stripes, named(n)) {
			stripes[i].Owner = owner
			counts[fmt.Sprint(owner, stripes[i].Source)]++
		}
		for key, c := range counts {
			if c > 4/n+1 {
				t.Errorf("%d loaders: %s has %d stripes of it", n, key, c)
			}
		}
	}
	if out := Assign(stripes, nil); slices.ContainsFunc(out, func(s string) bool { return s != "" }) {
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
