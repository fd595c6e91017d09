package mixing

import (
	"errors"
	"math"
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func derived(t *testing.T, d Derivation, sizes ...uint64) Proportions {
	t.Helper()
	weights, err := d.Sizes(sizes)
	if err != nil {
		t.Fatal(err)
	}
	p, err := proportion(weights)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestDerivedWeights(t *testing.T) {
	for name, c := range map[string]struct {
		rule  Derivation
		sizes []uint64
		want  []int // permille
	}{
		"uniform": {Derivation{}, []uint64{5, 0, 7, 1 << 60}, []int{250, 250, 250, 250}},
		"size":    {Derivation{Rule: BySize}, []uint64{1, 2, 0, 7}, []int{100, 200, 0, 700}},
		"square roots": {
			Derivation{Rule: ByTemperature, Temperature: big.NewRat(2, 1)}, []uint64{1, 9, 36, 0},
			[]int{100, 300, 600, 0},
		},
		"temperature 1 is size": {
			Derivation{Rule: ByTemperature, Temperature: big.NewRat(1, 1)}, []uint64{1, 2, 7}, []int{100, 200, 700},
		},
		"alpha 0.3 of XLM": {
			Derivation{Rule: ByTemperature, Temperature: big.NewRat(10, 3)}, []uint64{1, 1024}, []int{111, 889},
		},
		"unimax, no source is capped": {
			Derivation{Rule: UniMax, MaxEpochs: 4, Budget: 300}, []uint64{100, 200, 900}, []int{333, 333, 333},
		},
		"unimax, the small one is": {
			Derivation{Rule: UniMax, MaxEpochs: 4, Budget: 1000}, []uint64{900, 25, 700}, []int{450, 100, 450},
		},
		"unimax, all are": {
			Derivation{Rule: UniMax, MaxEpochs: 1, Budget: 1e9}, []uint64{300, 200, 500}, []int{300, 200, 500},
		},
		"unimax, one holds nothing": {
			Derivation{Rule: UniMax, MaxEpochs: 1, Budget: 10}, []uint64{0, 200, 500}, []int{0, 500, 500},
		},
	} {
		if got := permille(derived(t, c.rule, c.sizes...)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	for _, bad := range []Derivation{
		{Rule: ByTemperature}, {Rule: ByTemperature, Temperature: big.NewRat(1, 2)}, {Rule: UniMax, Budget: 1},
		{Rule: UniMax, MaxEpochs: 1}, {Rule: UniMax + 1},
	} {
		if _, err := bad.Sizes([]uint64{1}); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}

// TestRoots compares with floating point for any temperature, and with the square roots of big.Int to the last bits.
func TestRoots(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Uint64Min(1).Draw(t, "n")
		num, den := rapid.Int64Range(1, 1000).Draw(t, "num"), rapid.Int64Range(1, 100).Draw(t, "den")
		tau := big.NewRat(num+den, den)
		got, _ := new(big.Rat).SetFrac(rootParts(n, tau), new(big.Int).Lsh(big.NewInt(1), rootBits)).Float64()
		want := math.Pow(float64(n), float64(den)/float64(num+den))
		if math.Abs(got-want) > 1e-12*want {
			t.Fatalf("%d^(1/%s) is %.17g, want %.17g", n, tau, got, want)
		}
		exact := new(big.Int).Lsh(new(big.Int).SetUint64(n), 2*rootBits)
		exact.Sqrt(exact)
		gap := new(big.Int).Sub(exact, rootParts(n, big.NewRat(2, 1)))
		if gap.Abs(gap).Lsh(gap, 80).Cmp(exact) > 0 {
			t.Fatalf("the square root of %d is off by %s parts", n, gap)
		}
	})
}

// TestUniMaxSpendsTheBudget: the weights add up to the budget, or to the documents of all epochs. No source that could
// take more gets less than another.
func TestUniMaxSpendsTheBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.Uint64Range(0, 1000), 1, 6).Draw(t, "sizes")
		d := Derivation{
			Rule:      UniMax,
			MaxEpochs: rapid.Uint32Range(1, 5).Draw(t, "epochs"),
			Budget:    rapid.Uint64Range(1, 9000).Draw(t, "budget"),
		}
		weights, _ := d.Sizes(sizes)
		total, held := new(big.Int), uint64(0)
		for i, w := range weights {
			total.Add(total, w)
			held += sizes[i] * uint64(d.MaxEpochs)
		}
		if total.Sign() == 0 {
			return // all sources are empty
		}
		spent := new(big.Rat).SetInt(new(big.Int).SetUint64(min(held, d.Budget)))
		for i, w := range weights {
			mine := new(big.Rat).Mul(new(big.Rat).SetFrac(w, total), spent)
			most := new(big.Rat).SetInt64(int64(sizes[i]) * int64(d.MaxEpochs))
			if mine.Cmp(most) > 0 {
				t.Fatalf("%v of %v: source %d gets %s, holds %s", d, sizes, i, mine, most)
			}
			for j := range weights {
				if w.Cmp(weights[j]) < 0 && mine.Cmp(most) < 0 {
					t.Fatalf("%v of %v: source %d gets less than %d and is not spent", d, sizes, i, j)
				}
			}
		}
	})
}

func weight(t *testing.T, text string) Weight { return mustWeights(t, text)[0] }

func TestFlatten(t *testing.T) {
	leaf := func(w string, source int) Node { return Node{Weight: weight(t, w), Source: source} }
	group := func(w string, parts ...Node) Node { return Node{Weight: weight(t, w), Parts: parts} }
	sized := group("1", leaf("0", 0), leaf("0", 1))
	sized.Derived, _ = Derivation{Rule: BySize}.Sizes([]uint64{1, 4})
	for name, c := range map[string]struct {
		sources int
		whole   Node
		want    []int
	}{
		"groups of groups": {
			5,
			group(
				"9", group("0.7", leaf("3", 0), leaf("1", 1)),
				group("0.3", group("2", leaf("1", 2), leaf("0", 3)), group("1", leaf("0.1", 4))),
			),
			[]int{525, 175, 200, 0, 100},
		},
		"one group": {
			3, group("0", group("1", leaf("1", 0), leaf("1", 1), leaf("1", 2))), []int{333, 333, 333},
		},
		"derived":                {3, group("1", sized, leaf("1", 2)), []int{100, 400, 500}},
		"a group without weight": {2, group("1", group("0", leaf("0", 0)), leaf("1", 1)), []int{0, 1000}},
		"a tiny one":             {2, group("1", leaf("1e-59", 0), leaf("1e59", 1)), []int{0, 1000}},
	} {
		weights, err := Flatten(c.sources, c.whole)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		p, err := Proportion(weights)
		if err != nil || !slices.Equal(permille(p), c.want) {
			t.Errorf("%s: %v %v, want %v", name, permille(p), err, c.want)
		}
		for i, w := range weights {
			if again, err := ParseWeight(w.String()); err != nil || again != w ||
				new(big.Rat).SetInt(new(big.Int).SetUint64(p[i])).Cmp(w.rat()) != 0 {
				t.Errorf("%s: weight %s is read back as %s, %v, and comes to %d", name, w, again, err, p[i])
			}
		}
	}
	thirds, _ := Flatten(3, group("0", group("1", leaf("1", 0), leaf("1", 1), leaf("1", 2))))
	if flat, _ := Proportion(mustWeights(t, "1", "1", "1")); flat[0] != thirds[0].digits {
		t.Errorf("a single group is not its weights: %v, %v", thirds, flat)
	}
	if _, err := Flatten(2, group("1", group("1", leaf("0", 0)), leaf("1", 1))); !errors.Is(err, ErrNoWeight) {
		t.Errorf("a group that has weight and holds none: %v", err)
	}
}

// dumbWithin finds the factor by halving, in rationals.
func dumbWithin(parts, least, most []*big.Rat) []*big.Rat {
	low, high := new(big.Rat), big.NewRat(1<<40, 1)
	at := func(f *big.Rat) (out []*big.Rat, total *big.Rat) {
		total = new(big.Rat)
		for i, p := range parts {
			x := new(big.Rat).Mul(p, f)
			if x.Cmp(least[i]) < 0 {
				x = least[i]
			}
			if x.Cmp(most[i]) > 0 {
				x = most[i]
			}
			out = append(out, x)
			total.Add(total, x)
		}
		return out, total
	}
	for range 120 {
		mid := new(big.Rat).Add(low, high)
		mid.Quo(mid, big.NewRat(2, 1))
		if _, total := at(mid); total.Cmp(big.NewRat(1, 1)) < 0 {
			low = mid
		} else {
			high = mid
		}
	}
	out, _ := at(low)
	return out
}

func TestWithinIsTheWaterLevel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "sources")
		weights := make([]*big.Int, n)
		b := Bounds{Least: make([]uint64, n), Most: make([]uint64, n)}
		for i := range n {
			weights[i] = big.NewInt(rapid.Int64Range(1, 1000).Draw(t, "weight"))
			b.Least[i] = rapid.Uint64Range(0, wholeParts/uint64(n)).Draw(t, "least")
			b.Most[i] = rapid.Uint64Range(min(wholeParts/uint64(n)+1, wholeParts), wholeParts).Draw(t, "most")
		}
		p, _ := proportion(weights)
		var parts, least, most []*big.Rat
		whole := new(big.Int).SetUint64(wholeParts)
		fraction := func(x uint64) *big.Rat { return new(big.Rat).SetFrac(new(big.Int).SetUint64(x), whole) }
		for i := range p {
			parts, least, most = append(
				parts,
				fraction(p[i]),
			), append(
				least,
				fraction(b.Least[i]),
			), append(
				most,
				fraction(b.Most[i]),
			)
		}
		got := p.Within(b, nil)
		total := uint64(0)
		for i, want := range dumbWithin(parts, least, most) {
			total += got[i]
			gap := new(big.Rat).Sub(fraction(got[i]), want)
			if gap.Abs(gap).Cmp(big.NewRat(1, 1<<50)) > 0 {
				t.Fatalf("%v within %+v: source %d gets %s, want %s", p, b, i, fraction(got[i]).FloatString(12),
					want.FloatString(12))
			}
			if got[i] < b.Least[i] || got[i] > b.Most[i] {
				t.Fatalf("source %d has %d, outside %d … %d", i, got[i], b.Least[i], b.Most[i])
			}
		}
		if total > wholeParts || total+uint64(n) < wholeParts {
			t.Fatalf("parts add up to %d of %d", total, uint64(wholeParts))
		}
	})
}

func TestBoundsOfASchedule(t *testing.T) {
	const percent = wholeParts / 100
	s := mustSchedule(t, stepMilestone(t, 0, "80 15 5 0", RampNone, 0), stepMilestone(t, 10, "0 0 1 1", RampNone, 0))
	s.Bound(Bounds{Least: []uint64{0, 0, 10 * percent, 10 * percent}, Most: []uint64{50 * percent, 0, 0, 0}})
	share := func(step uint64, active ...bool) (out []int) {
		for _, x := range s.Divide(s.At(step, 0), active) {
			out = append(out, int((uint64(x)*1000+One/2)/One))
		}
		return out
	}
	for _, c := range []struct {
		step   uint64
		active []bool
		want   []int
	}{
		{0, nil, []int{500, 375, 125, 0}},                           // the others divide the excess of the first
		{0, []bool{true, false, true, true}, []int{500, 0, 500, 0}}, // a source left
		{0, []bool{true, false, false, true}, []int{1000, 0, 0, 0}}, // the only source left gets the whole
		{10, []bool{true, true, true, true}, []int{0, 0, 500, 500}}, // a least holds only for sources with weight
		{0, []bool{false, false, false, false}, []int{0, 0, 0, 0}},  // no source is active
		{0, []bool{false, true, true, true}, []int{0, 750, 250, 0}}, // 15 : 5, above the least
	} {
		if got := share(c.step, c.active...); !slices.Equal(got, c.want) {
			t.Errorf("step %d of %v: %d, want %d", c.step, c.active, got, c.want)
		}
	}
}
