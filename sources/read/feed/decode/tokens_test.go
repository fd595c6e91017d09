package decode

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestPackedTokens: ids of any size come back, from any part of them, behind those of the caller.
func TestPackedTokens(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct{ below, bytes int }{{1 << 16, 2}, {1 << 24, 3}, {1 << 32, 4}} {
		for _, n := range []int{0, 1, 2, 17, 1000} {
			ids := make([]uint32, n)
			for i := range ids {
				ids[i] = uint32(r.Int64N(int64(c.below)))
			}
			if n > 0 {
				ids[n/2] = uint32(c.below - 1)
			}
			p := Pack(ids)
			if got := 2*len(p.low) + len(p.high) + 4*len(p.wide); n == 1000 && got != c.bytes*n {
				t.Errorf("%d ids below %d take %d bytes", n, c.below, got)
			}
			if p.Len() != n {
				t.Errorf("%d ids have the length %d", n, p.Len())
			}
			from := r.IntN(n + 1)
			to := from + r.IntN(n-from+1)
			want := append([]uint32{7, 8}, ids[from:to]...)
			if got := p.Append([]uint32{7, 8}, from, to); !slices.Equal(got, want) {
				t.Errorf("ids %d to %d of %d below %d are %v, want %v", from, to, n, c.below, got, want)
			}
		}
	}
}

// BenchmarkTokens packs and unpacks the ids of a part.
func BenchmarkTokens(b *testing.B) {
	for _, c := range []struct {
		name  string
		below uint32
	}{{"two bytes", 50_257}, {"three bytes", 200_000}} {
		ids := make([]uint32, 1<<16)
		for i := range ids {
			ids[i] = rand.Uint32N(c.below)
		}
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(4 * int64(len(ids)))
			var out []uint32
			for b.Loop() {
				p := Pack(ids)
				out = p.Append(out[:0], 0, len(ids))
			}
		})
	}
}
