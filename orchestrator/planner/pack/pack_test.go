package pack

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"millrace"
)

// dumbBestFit is best-fit-decreasing that looks at every bin: the fullest bin with room, of equals the last changed.
func dumbBestFit(capacity uint32, limit int, units []uint32) (bin []uint32, bins int, overflow uint64) {
	order := make([]int, len(units))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(units[b], units[a]) })
	var left []uint32
	var changed []int
	bin = make([]uint32, len(units))
	for now, i := range order {
		best := -1
		for b := range left {
			if left[b] >= units[i] &&
				(best < 0 || left[b] < left[best] || left[b] == left[best] && changed[b] > changed[best]) {
				best = b
			}
		}
		if best < 0 {
			if len(left) == limit {
				overflow += uint64(units[i])
				bin[i] = NoBin
				continue
			}
			best = len(left)
			left, changed = append(left, capacity), append(changed, 0)
		}
		bin[i] = uint32(best)
		left[best] -= units[i]
		changed[best] = now
	}
	return bin, len(left), overflow
}

func TestPackIsBestFitDecreasing(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 400 {
		capacity := []uint32{1, 2, 63, 64, 65, 100, 2048, 4097, 300000}[round%9]
		n := rng.IntN(300)
		limit := 1 + rng.IntN(n/2+2)
		units := make([]uint32, n)
		for i := range units {
			most := capacity
			if round%2 == 0 {
				most = capacity/3 + 1
			}
			units[i] = 1 + rng.Uint32N(most)
		}
		p := newPacker(capacity)
		p.limit = limit
		got := make([]uint32, n)
		p.sort(units)
		for _, prefix := range []int{n, n / 2, n} {
			clear(got)
			bins, overflow := p.pack(units, prefix, got, false)
			want, wantBins, wantOverflow := dumbBestFit(capacity, limit, units[:prefix])
			if bins != wantBins || overflow != wantOverflow {
				t.Fatalf("round %d: %d bins, %d over; want %d, %d", round, bins, overflow, wantBins, wantOverflow)
			}
			if !slices.Equal(got[:prefix], want) {
				t.Fatalf("round %d: bins %v, want %v", round, got, want)
			}
			if _, probed := p.pack(units, prefix, got, true); (probed > 0) != (overflow > 0) {
				t.Fatalf("round %d: a probe says %d over, a pack %d", round, probed, overflow)
			}
		}
	}
}

func TestBitmapNext(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, size := range []uint32{1, 64, 65, 4096, 4097, 262145, MaxUnits + 1} {
		b := newBitmap(size)
		members := map[uint32]bool{}
		for range 200 {
			i := rng.Uint32N(size)
			if members[i] {
				b.remove(i)
				delete(members, i)
			} else {
				b.add(i)
				members[i] = true
			}
			from := rng.Uint32N(size)
			want, found := uint32(0), false
			for m := range members {
				if m >= from && (!found || m < want) {
					want, found = m, true
				}
			}
			if got, ok := b.next(from); ok != found || got != want {
				t.Fatalf("size %d: next(%d) = %d, %v; want %d, %v", size, from, got, ok, want, found)
			}
		}
		b.clear()
		if _, ok := b.next(0); ok {
			t.Fatalf("size %d: a cleared bitmap has a member", size)
		}
	}
}

// BenchmarkPack packs windows of 8K segments and of 64K, with the lengths of bench/plan.
func BenchmarkPack(b *testing.B) {
	for _, c := range []struct {
		lengths  string
		capacity uint32
	}{
		{"pretrain", 2048}, {"pretrain", 8192}, {"pretrain", 32768}, {"longctx", 32768}, {"longctx", 131072},
		{"sft", 16384},
	} {
		all := readLengths(b, c.lengths, c.capacity)
		for _, n := range []int{8 << 10, 64 << 10} {
			b.Run(fmt.Sprintf("%s/T=%d/n=%d", c.lengths, c.capacity, n), func(b *testing.B) {
				units := all[:n]
				p := newPacker(c.capacity)
				p.limit = n
				bin := make([]uint32, n)
				used := processorTime(b)
				for b.Loop() {
					p.sort(units)
					p.pack(units, n, bin, false)
				}
				b.ReportMetric(float64(n)*float64(b.N)/(processorTime(b)-used).Seconds()/1e6, "Msegments/s")
			})
		}
	}
}

// processorTime returns the processor time of this process, the collector included. A busy machine does not change it.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// readLengths draws 64K segments from a histogram of bench/plan. Documents longer than a bin are cut.
func readLengths(b *testing.B, name string, capacity uint32) []uint32 {
	text, err := os.ReadFile("../../../bench/plan/workload/testdata/" + name + ".csv")
	if err != nil {
		b.Fatal(err)
	}
	var lengths, until []uint32 // until: documents of this length and of those before it
	total := uint32(0)
	for line := range strings.Lines(string(text)) {
		var length, count uint32
		if _, err := fmt.Sscanf(line, "%d,%d", &length, &count); err == nil {
			total += count
			lengths, until = append(lengths, length), append(until, total)
		}
	}
	rng := rand.New(rand.NewPCG(5, 7))
	units := make([]uint32, 0, 64<<10)
	for len(units) < cap(units) {
		at, _ := slices.BinarySearch(until, rng.Uint32N(total)+1)
		l := lengths[at]
		for ; l > capacity && len(units) < cap(units)-1; l -= capacity {
			units = append(units, capacity)
		}
		units = append(units, min(l, capacity))
	}
	return units
}

// TestCutIsTheLongestPrefix: a longer prefix does not fit, whichever segment is first.
func TestCutIsTheLongestPrefix(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	for round := range 200 {
		in := Window{Packing: millrace.BestFit, Capacity: 100, Batch: 8 + rng.IntN(24), Steps: 1}
		units := make([]uint32, 0, 400)
		for total := uint32(0); total <= 100*uint32(in.Batch); total += units[len(units)-1] {
			units = append(units, 1+rng.Uint32N(100>>(round%4)))
		}
		n, bins := new(Cutter).Cut(units, in, nil, nil)
		_, wantBins, over := dumbBestFit(100, in.Batch, units[:n])
		if over > 0 || wantBins != bins {
			t.Fatalf("round %d: %d of %d draws need %d bins and leave %d over, cut says %d bins", round, n, len(units),
				wantBins, over, bins)
		}
		if _, _, over := dumbBestFit(100, in.Batch, units[:n+1]); over == 0 {
			t.Fatalf("round %d: %d of %d draws were taken, one more fits", round, n, len(units))
		}
	}
}
