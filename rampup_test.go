package millrace

import "testing"

// megatron is the rule of Megatron-LM with an exact quotient: the sequences consumed so far decide the size of the next
// step.
func megatron(r Rampup, whole uint32, steps int) (sizes []uint32) {
	consumed, increments := uint64(0), uint64((whole-r.Start)/r.Increment)
	for range steps {
		size := whole
		if consumed <= r.Samples {
			size = r.Start + uint32(consumed*increments/r.Samples)*r.Increment
		}
		sizes = append(sizes, size)
		consumed += uint64(size)
	}
	return sizes
}

func TestRampupIsMegatrons(t *testing.T) {
	for _, x := range []struct {
		ramp  Rampup
		whole uint32
	}{
		{Rampup{32, 32, 1000}, 128}, {Rampup{1, 1, 1}, 2}, {Rampup{4, 4, 3}, 64}, {Rampup{8, 24, 7777}, 80},
		{Rampup{16, 8, 100}, 24}, {Rampup{2, 2, 1000}, 1000},
	} {
		want := megatron(x.ramp, x.whole, 500)
		for step, size := range want {
			if got := x.ramp.BatchSize(x.whole, uint64(step)); got != size {
				t.Fatalf("%+v to %d: step %d has %d sequences, Megatron's rule says %d", x.ramp, x.whole, step, got,
					size)
			}
		}
		last := uint32(0)
		for from, size := range x.ramp.Sizes(x.whole) {
			if size <= last || from < uint64(len(want)) && want[from] != size ||
				from > 0 && from < uint64(len(want)) && want[from-1] == size {
				t.Fatalf("%+v to %d: size %d from step %d on", x.ramp, x.whole, size, from)
			}
			last = size
		}
		if last != x.whole {
			t.Fatalf("%+v ends at %d, want %d", x.ramp, last, x.whole)
		}
	}
	if got := (Rampup{}).BatchSize(7, 3); got != 7 {
		t.Errorf("no ramp: %d sequences, want 7", got)
	}
}
