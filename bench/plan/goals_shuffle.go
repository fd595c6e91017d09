package main

import (
	"fmt"
	"math"

	"millrace/bench/plan/workload"
	"millrace/mixing"
)

// goal9 measures the speed and the randomness of the permutation, and checks that it is a bijection.
func goal9(b *bench) ([]row, error) {
	slowest, all := 0.0, ""
	for _, n := range []uint64{1e6, 1<<20 + 1, 1e9, 1<<32 + 1, 1e12, 1<<39 + 1} {
		took := math.Inf(1)
		for range 5 { // the best of five, because other processes slow some down
			took = min(took, b.nanoseconds(n))
		}
		slowest = max(slowest, took)
		all += fmt.Sprintf(" %.3g: %.1f", float64(n), took)
	}
	worst, where := battery()
	wrong, doubled := uint64(0), 0
	for _, n := range []uint64{1e7, 1<<20 + 1, 1<<16 + 1, 1<<23 - 1} {
		if d := repeats(n); d > 0 {
			wrong, doubled = n, d
		}
	}
	return []row{
		{
			"G9", "permutation: ≤ 20 ns an index at every n to 10^12, 2^k+1 too", fmt.Sprintf("%.1f ns", slowest),
			atMost(slowest, 20), "ns at n =" + all,
		},
		{
			"G9", "pairs at strides 1, 2, 1000, 1024, √n and index against image, 10 keys: \\|z\\| < 5",
			fmt.Sprintf("%.2f", worst), holds(worst < 5), where,
		},
		{
			"G9", "a bijection, exhaustively at 2^16+1, 2^20+1, 2^23−1, 10^7", fmt.Sprintf("%d repeated", doubled),
			holds(wrong == 0), "Grain's permutation repeats one at 2^16+1 and 2^20+1",
		},
	}, nil
}

func (b *bench) nanoseconds(n uint64) float64 {
	p := mixing.NewPermutation(n, mixing.DeriveKey(workload.Seed, mixing.Number(n)))
	sum, count := uint64(0), uint64(b.draws)
	begin := processorTime()
	for i := uint64(0); count > 0; count-- {
		sum += p.At(i)
		if i++; i == n {
			i = 0
		}
	}
	took := processorTime() - begin
	if sum == 0 {
		return math.Inf(1)
	}
	return float64(took.Nanoseconds()) / float64(b.draws)
}

// battery returns the worst z score over sizes, keys and strides, and its place.
func battery() (worst float64, where string) {
	for _, n := range []uint64{1 << 20, 1<<20 + 1, 1e6, 1e9, 1e12} {
		for key := range uint64(10) {
			p := mixing.NewPermutation(n, mixing.DeriveKey(key, mixing.Text("battery")))
			for _, stride := range []uint64{0, 1, 2, 1000, 1024, uint64(math.Sqrt(float64(n)))} {
				if z := math.Abs(pairs(&p, stride)); z > worst {
					worst, where = z, fmt.Sprintf("the worst at n = %.3g, stride %d", float64(n), stride)
				}
			}
		}
	}
	return worst, where
}

// pairs returns the z score of a chi-square test over a grid of (image of i, image of i+stride); of (i, image of i) for
// stride 0.
func pairs(p *mixing.Permutation, stride uint64) float64 {
	const side, samples = 32, 1 << 15
	var counts [side][side]float64
	n := p.Len()
	cell := func(x uint64) int { return int(float64(x) / float64(n) * side) }
	for j := range uint64(samples) {
		if stride == 0 {
			i := uint64(float64(j) / samples * float64(n))
			counts[cell(i)][cell(p.At(i))]++
			continue
		}
		i := (n/3 + j) % (n - stride)
		counts[cell(p.At(i))][cell(p.At(i+stride))]++
	}
	degrees := float64(side*side - 1)
	if stride == 0 {
		degrees = side * (side - 1) // because every row holds the same number
	}
	const expect = float64(samples) / (side * side)
	chi := 0.0
	for _, line := range counts {
		for _, c := range line {
			chi += (c - expect) * (c - expect) / expect
		}
	}
	return (chi - degrees) / math.Sqrt(2*degrees)
}

// repeats counts indices whose image is outside the range or the image of an earlier index.
func repeats(n uint64) (wrong int) {
	p := mixing.NewPermutation(n, mixing.DeriveKey(workload.Seed, mixing.Number(n)))
	seen := make([]bool, n)
	for i := range n {
		x := p.At(i)
		if x >= n || seen[x] {
			wrong++
			continue
		}
		seen[x] = true
	}
	return wrong
}
