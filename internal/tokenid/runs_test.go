package tokenid

import (
	"math/rand/v2"
	"testing"
)

// TestRunsCountAsIDsDo: for random ids and every range of them, the runs count as the bits of the ids do.
func TestRunsCountAsIDsDo(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 9))
	for round := range 300 {
		ids := make([]uint32, rng.IntN(40))
		for i, length, is := 0, 0, uint32(0); i < len(ids); i, length = i+1, length-1 {
			if length <= 0 {
				length, is = 1+rng.IntN(1+round%9), rng.Uint32N(2)
			}
			ids[i] = 7 | is*Untrained
		}
		runs := RunsOf(ids)
		if all := CountUntrained(ids); (all == 0) != (runs == nil) {
			t.Fatalf("%v: %d ids are untrained, and the runs are %v", ids, all, runs)
		}
		for from := range len(ids) + 1 {
			for to := from; to <= len(ids); to++ {
				want := uint32(0)
				for _, id := range ids[from:to] {
					if id&Untrained != 0 {
						want++
					}
				}
				if got := CountUntrained(ids[from:to]); got != want {
					t.Fatalf("%v: %d ids are untrained, want %d", ids[from:to], got, want)
				}
				if got := runs.Untrained(uint32(from), uint32(to)); got != want {
					t.Fatalf("%v from %d to %d: %d by the runs, want %d", ids, from, to, got, want)
				}
			}
		}
	}
}

// TestRunsThatAreCutOff: runs of a message may be any bytes.
func TestRunsThatAreCutOff(t *testing.T) {
	for _, r := range []Runs{{0x80}, {0, 0x80}, {1, 2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}} {
		if n := r.Untrained(0, 10); n > 10 {
			t.Errorf("%v: %d untrained tokens of 10", r, n)
		}
	}
}
