package mixing

import (
	"flag"
	"fmt"
	"math"
	"slices"
	"testing"
)

var bijectionBits = flag.Int("bijection", 21, "the power of two up to which permutations are tested exhaustively")

func testKey(i int) Key { return DeriveKey(uint64(i), Text("test"), Number(0), Text("order")) }

// requireBijection marks every image in a table and inverts it. The table has room for n images and is clear before and
// after.
func requireBijection(t *testing.T, seen []bool, n uint64, key Key) {
	t.Helper()
	p := NewPermutation(n, key)
	for i := range n {
		x := p.At(i)
		if x >= n || seen[x] {
			t.Fatalf("n=%d: At(%d) = %d is outside or doubled", n, i, x)
		}
		seen[x] = true
		if back := p.Inverse(x); back != i {
			t.Fatalf("n=%d: Inverse(At(%d)) = %d", n, i, back)
		}
	}
	clear(seen[:n])
}

// TestPermutationIsABijection tests every n up to 4096, and the numbers beside each power of two up to 2^21,
// exhaustively. -bijection=24 goes further.
func TestPermutationIsABijection(t *testing.T) {
	seen := make([]bool, 1<<*bijectionBits+1)
	for n := uint64(1); n <= 4096; n++ {
		requireBijection(t, seen, n, testKey(int(n)))
	}
	for k := 12; k <= *bijectionBits; k++ {
		for _, n := range []uint64{1<<k - 1, 1 << k, 1<<k + 1} {
			requireBijection(t, seen, n, testKey(k))
		}
	}
	for n := uint64(1); n <= 64; n++ {
		for k := range 50 {
			requireBijection(t, seen, n, testKey(k))
		}
	}
}

func TestPermutationRoundTripsOnLargeDomains(t *testing.T) {
	for _, n := range []uint64{
		1e6, 1e9, 1<<32 - 1, 1 << 32, 1<<32 + 1, 1e12 - 1, 1e12, 1 << 40, 1<<40 + 1, 1<<62 - 1, 1 << 62,
	} {
		p := NewPermutation(n, testKey(int(n%1000)))
		for j := range uint64(2000) {
			i := splitMix(j) % n
			if j < 4 { // the corners too
				i = []uint64{0, n - 1, p.a - 1, n / 2}[j]
			}
			x := p.At(i)
			if x >= n || p.Inverse(x) != i || p.At(p.Inverse(i)) != i {
				t.Fatalf("n=%d: i=%d gives %d and back %d", n, i, x, p.Inverse(x))
			}
		}
	}
}

func TestPermutationOutsideItsDomain(t *testing.T) {
	for _, n := range []uint64{0, 1, 7, 1000} {
		p := NewPermutation(n, testKey(1))
		for _, i := range []uint64{n, n + 1, math.MaxUint64} {
			if p.At(i) != i || p.Inverse(i) != i {
				t.Errorf("n=%d: %d does not stay", n, i)
			}
		}
	}
	if p := NewPermutation(math.MaxUint64, testKey(1)); p.Len() != MaxPermutation {
		t.Errorf("domain is %d", p.Len())
	}
}

// pairZ is the z score of chi-square over a grid of (At(i), At(i+stride)) against uniform pairs.
func pairZ(p *Permutation, stride uint64, samples int) float64 {
	const grid = 32
	var counts [grid * grid]float64
	cell := func(x uint64) uint64 { return uint64(float64(x) / float64(p.n) * grid) }
	start := splitMix(p.keys[0]) % p.n
	for j := range uint64(samples) {
		i := (start + j) % (p.n - stride)
		counts[cell(p.At(i))*grid+cell(p.At(i+stride))]++
	}
	expect, chi := float64(samples)/(grid*grid), 0.0
	for _, c := range counts {
		chi += (c - expect) * (c - expect) / expect
	}
	const degrees = grid*grid - 1
	return (chi - degrees) / math.Sqrt(2*degrees)
}

// displacementZ tests that an image does not depend on its index: the same chi-square over (i, At(i)), with i spread
// over the domain.
func displacementZ(p *Permutation, samples int) float64 {
	const grid = 32
	var counts [grid * grid]float64
	cell := func(x uint64) uint64 { return uint64(float64(x) / float64(p.n) * grid) }
	for j := range uint64(samples) {
		i := uint64(float64(j) / float64(samples) * float64(p.n))
		counts[cell(i)*grid+cell(p.At(i))]++
	}
	chi, expect := 0.0, float64(samples)/(grid*grid)
	for _, c := range counts {
		chi += (c - expect) * (c - expect) / expect
	}
	const degrees = (grid - 1) * grid // the totals of the rows are fixed
	return (chi - degrees) / math.Sqrt(2*degrees)
}

func TestPermutationBattery(t *testing.T) {
	const samples, keys = 1 << 15, 10
	worst := 0.0
	for _, n := range []uint64{1 << 20, 1<<20 + 1, 1e6, 1e9, 1e12} {
		for k := range keys {
			p := NewPermutation(n, testKey(100+k))
			scores := map[string]float64{"displacement": displacementZ(&p, samples)}
			for _, stride := range []uint64{1, 2, 1000, 1024, p.a, p.a - 1} {
				scores[fmt.Sprintf("stride %d", stride)] = pairZ(&p, stride, samples)
			}
			for name, z := range scores {
				worst = max(worst, math.Abs(z))
				if math.Abs(z) >= 5 {
					t.Errorf("n=%d key %d %s: z = %.1f", n, k, name, z)
				}
			}
		}
	}
	t.Logf("worst |z| %.2f", worst)
}

// TestPermutationSmallDomains: small domains show that rounds are too few. Over many keys, every (index, image) pair
// must be nearly equally likely. The test measures Cramér's V squared beyond chance. 0.0015 corresponds to a pair that
// is likelier by about one part in fifty.
func TestPermutationSmallDomains(t *testing.T) {
	const keys = 20000
	for _, n := range []uint64{2, 3, 4, 5, 6, 7, 10, 16, 17} {
		counts := make([]float64, n*n)
		for k := range keys {
			p := NewPermutation(n, Key{byte(k), byte(k >> 8), 1})
			for i := range n {
				counts[i*n+p.At(i)]++
			}
		}
		expect, chi := float64(keys)/float64(n), 0.0
		for _, c := range counts {
			chi += (c - expect) * (c - expect) / expect
		}
		degrees := float64((n - 1) * (n - 1))
		excess := (chi - degrees) / (keys * float64(n-1))
		t.Logf("n=%d: excess %.5f", n, excess)
		if math.Abs(excess) >= 0.0015 {
			t.Errorf("n=%d: excess %.5f", n, excess)
		}
	}
}

// TestPermutationGolden: these values are part of every checkpoint ever written. A change here needs a new planner
// version.
func TestPermutationGolden(t *testing.T) {
	key := DeriveKey(1234, Text("web"), Number(0), Text("order"))
	for _, g := range permutationGolden {
		p := NewPermutation(g.n, key)
		var got []uint64
		for i := range uint64(len(g.images)) {
			got = append(got, p.At(i))
		}
		if !slices.Equal(got, g.images) {
			t.Errorf("n=%d: got %d, want %d", g.n, got, g.images)
		}
	}
	if got := fmt.Sprintf("%x", key); got != keyGolden {
		t.Errorf("key is %s, want %s", got, keyGolden)
	}
}

func TestDeriveKeyIsUnambiguous(t *testing.T) {
	lists := [][]Part{
		{}, {Text("")}, {Number(0)}, {Text("a"), Text("b")}, {Text("ab")}, {Text("ab"), Text("")},
		{Text(""), Text("ab")}, {Number(1), Number(0)}, {Number(0), Number(1)},
		{Text("a"), Number(1)}, {Number(1), Text("a")}, {Number('a')}, {Text("a\x00")},
		{Text("a"), Number(0), Text("x")}, {Text("a"), Number(0), Text("y")},
	}
	seen := map[Key]string{}
	for _, seed := range []uint64{0, 1, 2, 1 << 63} {
		for _, parts := range lists {
			key := DeriveKey(seed, parts...)
			name := fmt.Sprint(seed, parts)
			if other, ok := seen[key]; ok {
				t.Errorf("%s and %s share a key", name, other)
			}
			seen[key] = name
		}
	}
}

func TestCeilSqrt(t *testing.T) {
	for _, r := range []uint64{0, 1, 2, 3, 1000, 1 << 20, 1<<31 - 1, 1 << 31} {
		if got := ceilSqrt(r * r); got != r {
			t.Errorf("ceilSqrt(%d^2) = %d", r, got)
		}
		if r > 1 && ceilSqrt(r*r-1) != r || r < 1<<31 && ceilSqrt(r*r+1) != r+1 {
			t.Errorf("ceilSqrt beside %d^2 is wrong", r)
		}
	}
}

func BenchmarkPermutation(b *testing.B) {
	for _, n := range []uint64{1e6, 1<<20 - 1, 1 << 20, 1<<20 + 1, 1e9, 1<<32 + 1, 1e12} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := NewPermutation(n, testKey(1))
			var i, sum uint64
			for b.Loop() {
				sum += p.At(i)
				if i++; i == n {
					i = 0
				}
			}
			if sum == 0 {
				b.Fatal("no images")
			}
		})
	}
}
