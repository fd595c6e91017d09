package pack

import (
	"math/rand/v2"
	"slices"
	"testing"

	"millrace"
	"millrace/mixing"
)

// TestSubsetsAreBest: a choice is the best one, and fits.
func TestSubsetsAreBest(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 8))
	var s subsets
	for round := range 500 {
		capacity := 1 + rng.Uint32N(400)
		s.reset(capacity)
		units := make([]uint32, 1+rng.IntN(40))
		all := make([]uint32, len(units))
		for i := range units {
			units[i], all[i] = 1+rng.Uint32N(capacity), uint32(i)
		}
		room := 1 + rng.Uint32N(capacity)
		sums := map[uint32]bool{0: true}
		for _, u := range units {
			for _, sum := range slices.Collect(keys(sums)) {
				if sum+u <= room {
					sums[sum+u] = true
				}
			}
		}
		want := slices.Max(slices.Collect(keys(sums)))
		got, once := uint32(0), map[uint32]bool{}
		for _, i := range s.of(room, all, units) {
			if once[i] {
				t.Fatalf("round %d: segment %d is chosen twice", round, i)
			}
			once[i] = true
			got += units[i]
		}
		if got != want {
			t.Fatalf("round %d: a choice of %d for a room of %d, want %d of %v", round, got, room, want, units)
		}
	}
}

func keys(m map[uint32]bool) func(func(uint32) bool) {
	return func(yield func(uint32) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// TestSubsetsRoundUp: a bin of more units than the sums have room for is filled almost, and never too full.
func TestSubsetsRoundUp(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	const capacity = 1 << 22
	var s subsets
	s.reset(capacity)
	for round := range 50 {
		units, all := make([]uint32, 60), make([]uint32, 60)
		for i := range units {
			units[i], all[i] = 1+rng.Uint32N(capacity/8), uint32(i)
		}
		sum := uint32(0)
		for _, i := range s.of(capacity, all, units) {
			sum += units[i]
		}
		if sum > capacity || sum < capacity-capacity/1000 {
			t.Errorf("round %d: %d of %d units", round, sum, capacity)
		}
	}
}

// TestPoolKeepsItsPromises: no bin is too full, every bin has a segment if one waits, no more segments wait than may,
// urgent ones have a bin, and a Cutter that was used before gives the same bins.
func TestPoolKeepsItsPromises(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 1))
	used := new(Cutter)
	waited := 0
	for round := range 400 {
		in := Window{
			Packing: millrace.BestFit, Capacity: 1 << rng.IntN(12), Batch: 1 + rng.IntN(40), Steps: 1 + rng.IntN(2),
			Carry: 1 + rng.IntN(200), IsPooled: true,
		}
		if round%8 == 0 {
			in.Batch, in.Carry = 200+rng.IntN(600), 100+rng.IntN(413) // too many segments for a pool
		}
		limit := in.Batch * in.Steps
		need, total := uint64(limit)*uint64(in.Capacity), uint64(0)
		var units, ages, urgent []uint32
		for total <= need+uint64(in.Capacity)*rng.Uint64N(20) {
			u := 1 + rng.Uint32N(max(in.Capacity>>rng.IntN(4), 1))
			units, total = append(units, u), total+uint64(u)
			if len(ages) == len(units)-1 && rng.IntN(5) > 0 && len(ages) < in.Carry {
				ages = append(ages, rng.Uint32N(20))
				if len(urgent) < limit && rng.IntN(30) == 0 {
					urgent = append(urgent, uint32(len(ages)-1))
				}
			}
		}
		slices.SortStableFunc(urgent, func(a, b uint32) int { return int(units[b]) - int(units[a]) })
		in.Mix = randomMix(rng, units)
		n, bins := used.Cut(units, in, ages, urgent)
		load, waits := make([]uint64, limit), 0
		for i, b := range used.Bin[:n] {
			if b == NoBin {
				waits++
				continue
			}
			load[b] += uint64(units[i])
		}
		for b, l := range load {
			if l > uint64(in.Capacity) || (l == 0) != (b >= bins) {
				t.Fatalf("round %d: bin %d of %d has %d of %d units", round, b, bins, l, in.Capacity)
			}
		}
		if waits > max(in.Carry, len(ages)) || bins < limit && (waits > 0 || n < len(units)) || n < len(ages) {
			t.Fatalf("round %d: %d of %d segments are cut, %d wait, %d may; %d of %d bins", round, n, len(units), waits,
				in.Carry, bins, limit)
		}
		for _, i := range urgent {
			if used.Bin[i] == NoBin {
				t.Fatalf("round %d: urgent segment %d waits on", round, i)
			}
		}
		fresh := new(Cutter)
		if m, b := fresh.Cut(units, in, ages, urgent); m != n || b != bins ||
			!slices.Equal(fresh.Bin[:n], used.Bin[:n]) {
			t.Fatalf("round %d: another Cutter packs %d segments into %d bins, want %d and %d", round, m, b, n, bins)
		}
		waited += waits
	}
	if waited < 5000 {
		t.Errorf("only %d segments waited in all", waited)
	}
}

// randomMix returns sources of random shares for segments that were drawn in these shares.
func randomMix(rng *rand.Rand, units []uint32) (m Mix) {
	m.Share, m.Lag = make([]uint32, 1+rng.IntN(5)), make([]int64, 5)
	rest := uint32(mixing.One)
	for i := range m.Share {
		m.Share[i] = rest
		if i+1 < len(m.Share) {
			m.Share[i] = rng.Uint32N(rest)
		}
		rest -= m.Share[i]
	}
	m.Lag = m.Lag[:len(m.Share)]
	drawn := slices.Clone(m.Lag)
	for _, u := range units {
		source := 0
		for i := range drawn {
			drawn[i] += int64(m.Share[i]) * int64(u)
			if drawn[i] > drawn[source] {
				source = i
			}
		}
		drawn[source] -= int64(u) * mixing.One
		m.Source, m.Charge = append(m.Source, uint32(source)), append(m.Charge, int64(u))
	}
	return m
}

// TestBinsFollowTheMixture: no source leads by more than one and a half bins, and none lags by more than two.
func TestBinsFollowTheMixture(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 1))
	for _, segments := range []int{300, 5000} {
		most := int64(0)
		for range 40 {
			in := Window{Packing: millrace.BestFit, Capacity: 2048, Carry: 512, IsPooled: true}
			units, total := make([]uint32, segments), uint64(0)
			for i := range units {
				units[i] = 1 + rng.Uint32N(700)
				total += uint64(units[i])
			}
			in.Batch, in.Steps = int(total/uint64(in.Capacity))-2, 1
			in.Mix = randomMix(rng, units)
			c := new(Cutter)
			n, _ := c.Cut(units, in, nil, nil)
			lag, placed := slices.Clone(in.Mix.Lag), int64(0)
			for i, b := range c.Bin[:n] {
				if b != NoBin {
					lag[in.Mix.Source[i]] -= in.Mix.Charge[i] * mixing.One
					placed += in.Mix.Charge[i]
				}
			}
			for i := range lag {
				lag[i] += int64(in.Mix.Share[i]) * placed
				if lag[i] < -int64(in.Capacity)*mixing.One*3/2 {
					t.Errorf("%d segments: source %d leads by %d units", segments, i, -lag[i]/mixing.One)
				}
				most = max(most, lag[i])
			}
		}
		t.Logf("%d segments: a source lags by at most %d units", segments, most/mixing.One)
		if most > 2*2048*mixing.One {
			t.Errorf("%d segments: a source lags by %d units", segments, most/mixing.One)
		}
	}
}
