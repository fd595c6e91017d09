package pack

import (
	"millrace"
	"millrace/orchestrator/planner/order"
)

// Halved returns the number of times that Bucketed packing halves a bin of the window for a segment: as often as the
// segment still fits and the result is a whole number of units.
func (w *Window) Halved(units uint32) (times int) {
	for capacity := w.Capacity; times < millrace.MostHalvings && capacity%2 == 0 && capacity/2 >= units; times++ {
		capacity /= 2
	}
	return times
}

// shelf is a pool whose segments are sorted by bucket. Every step takes segments of one bucket, one a row.
type shelf struct {
	bucket []int                          // of each segment: number of halvings
	order  []uint32                       // segments, longest first, equals in draw order
	waits  [millrace.MostHalvings + 1]int // by bucket: segments that have no step yet
	bin    []uint32                       // of each segment
	// of each segment: it goes before the others of its bucket, and its bucket before others
	urgent []bool
	batch  int // rows of a step
}

// shelve assigns segments to the window's steps and returns the number of bins. A step takes the bucket with the most
// waiting segments, or that of the longest urgent segment. If the bucket has too few, the step takes the next shorter
// ones, then the next longer ones. The other segments wait.
func (c *Cutter) shelve(units []uint32, limit int, urgent []uint32) (bins int) {
	capacity := c.in.Capacity
	s := &shelf{bucket: make([]int, len(units)), bin: c.Bin, urgent: make([]bool, len(units)), batch: c.in.Batch}
	s.order = order.Counted(units, capacity, nil, make([]uint32, capacity+2))
	for i, u := range units {
		s.bucket[i] = c.in.Halved(u)
		s.waits[s.bucket[i]]++
		s.bin[i] = NoBin
	}
	for _, i := range urgent {
		s.urgent[i] = true
	}
	for bins < limit && bins < len(units) {
		bins += s.step(bins)
	}
	return bins
}

// step fills the bins of one step, beginning with the bin first, and returns their number.
func (s *shelf) step(first int) (rows int) {
	take := func(want func(i uint32) bool) {
		for _, i := range s.order {
			if rows < s.batch && s.bin[i] == NoBin && want(i) {
				s.bin[i] = uint32(first + rows)
				s.waits[s.bucket[i]]--
				rows++
			}
		}
	}
	in := s.fullest()
	take(func(i uint32) bool { return s.urgent[i] && s.bucket[i] == in })
	take(func(i uint32) bool { return s.bucket[i] == in })
	take(func(i uint32) bool { return s.urgent[i] && s.bucket[i] > in })
	take(func(i uint32) bool { return s.bucket[i] > in })
	for in--; in >= 0; in-- {
		take(func(i uint32) bool { return s.bucket[i] == in })
	}
	return rows
}

// fullest returns the bucket that a step takes. Of equally full buckets it is the one with the shortest rows.
func (s *shelf) fullest() (in int) {
	for _, i := range s.order {
		if s.urgent[i] && s.bin[i] == NoBin {
			return s.bucket[i]
		}
	}
	for bucket, n := range s.waits {
		if n >= s.waits[in] {
			in = bucket
		}
	}
	return in
}
