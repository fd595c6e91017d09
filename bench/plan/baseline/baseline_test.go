package baseline

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"millrace/bench/plan/overhead"
)

// Baselines lose no token and overfill no bin. Otherwise the comparison would favour the product.
func TestBaselinesLoseNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	m := overhead.Dense8B()
	for range 30 {
		lengths := make([]uint32, 200+rng.IntN(200))
		total, tokens := 0.0, uint64(0)
		for i := range lengths {
			lengths[i] = 1 + rng.Uint32N(1+rng.Uint32N(1000))
			total += m.Of(lengths[i])
			tokens += uint64(lengths[i])
		}
		for name, p := range map[string]Packing{
			"best-fit":  BestFitDecreasing(lengths, 1000, 0),
			"next-fit":  NextFit(lengths, 1000),
			"first-fit": FirstFit(lengths, 1000),
		} {
			full := make([]uint64, p.full)
			for i, b := range p.bin {
				full[b] += uint64(lengths[i])
			}
			if slices.Max(full) > 1000 || slices.Min(full) == 0 {
				t.Errorf("%s: bins of %d to %d tokens, the capacity is 1000", name, slices.Min(full), slices.Max(full))
			}
		}
		pieces, p, _ := Concatenate(lengths, 1000)
		if sum(pieces) != tokens || p.full != int((tokens+999)/1000) {
			t.Errorf("concat: %d tokens in %d bins of 1000, there are %d", sum(pieces), p.full, tokens)
		}
		lpt, lost := LongestProcessingTime(lengths, m, 8, 1<<40)
		for name, sums := range map[string][]float64{
			"LPT": lpt, "snake": Snake(lengths, m, 8), "Karmarkar-Karp": KarmarkarKarp(lengths, m, 8),
		} {
			got := 0.0
			for _, x := range sums {
				got += x
			}
			if math.Abs(got/total-1) > 1e-9 || lost > 0 || Gap(sums, 0) < 0 {
				t.Errorf("%s: bins add up to %g, the segments to %g", name, got, total)
			}
		}
		if kk, back := Gap(KarmarkarKarp(lengths, m, 8), 0), Gap(Snake(lengths, m, 8), 0); kk > back {
			t.Errorf("Karmarkar-Karp is %g %% over the mean, Snake %g %%", kk, back)
		}
	}
}

func sum(lengths []uint32) (total uint64) {
	for _, l := range lengths {
		total += uint64(l)
	}
	return total
}
