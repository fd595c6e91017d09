package planner

import "millrace"

// halved returns how often the stage's sequence length is halved for the rows that a segment goes to where the packing is Bucketed: as often as the
// segment fits, and what comes of it is a multiple of the pad multiple.
func (s *Spec) halved(in *Stage, tokens uint32) (times int) {
	pad := max(s.PadMultiple, 1)
	for length := in.SequenceLength; times < millrace.MostHalvings && length%2 == 0 && length/2%pad == 0 && length/2 >= s.units(tokens)*pad; times++ {
		length /= 2
	}
	return times
}

// shelf is a pool of which every step takes the segments of one bucket, one a row.
type shelf struct {
	bucket []int                          // of each segment: how often sequences are halved
	order  []uint32                       // segments, longest first, equals in draw order
	waits  [millrace.MostHalvings + 1]int // by bucket: segments that have no step yet
	bin    []uint32                       // of each segment
	urgent []bool                         // of each segment: it goes before the others of its bucket, and its bucket before others
	batch  int                            // rows of a step
}

// shelve gives the window's steps their segments and returns the number of bins. A step takes the bucket that most wait for, or that of the longest
// which must not wait any more; what this has too few of comes from the next shorter ones, and failing these from the next longer. What is
// left waits.
func (c *cutter) shelve(units []uint32, limit int, urgent []uint32) (bins int) {
	pad, capacity := max(c.spec.PadMultiple, 1), c.spec.binUnits(c.in)
	s := &shelf{bucket: make([]int, len(units)), bin: c.bin, urgent: make([]bool, len(units)), batch: c.in.GlobalBatch}
	s.order = sortDescending(units, capacity, nil, make([]uint32, capacity+2))
	for i, u := range units {
		s.bucket[i] = c.spec.halved(c.in, u*pad)
		s.waits[s.bucket[i]]++
		s.bin[i] = noBin
	}
	for _, i := range urgent {
		s.urgent[i] = true
	}
	for bins < limit && bins < len(units) {
		bins += s.step(bins)
	}
	return bins
}

// step fills the bins of one step, from the bin first on, and returns how many.
func (s *shelf) step(first int) (rows int) {
	take := func(want func(i uint32) bool) {
		for _, i := range s.order {
			if rows < s.batch && s.bin[i] == noBin && want(i) {
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

// fullest returns the bucket that a step takes; of equals the shorter.
func (s *shelf) fullest() (in int) {
	for _, i := range s.order {
		if s.urgent[i] && s.bin[i] == noBin {
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
