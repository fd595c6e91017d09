package planner

import (
	"cmp"
	"slices"
)

// cutter finds how much of a window's pool its bins hold.
type cutter struct {
	spec  *Spec
	in    *Stage
	pack  *packer  // for bins as those of the last cut
	bin   []uint32 // of each segment; noBin for one that waits
	least int      // the shortest prefix: what was carried
	packs int      // of the last cut
}

func newCutter(spec *Spec) *cutter { return &cutter{spec: spec} }

// cut returns how many of the first segments the bins of that many steps of the stage hold, or leave to the next window, and how many bins they use; c.bin
// then holds the bin of each. The first ones were carried, of which the urgent are packed before all others. Without carry, or where more would
// wait than may, it is the longest prefix that fits.
func (c *cutter) cut(units []uint32, in *Stage, steps, carried int, urgent []uint32) (n, bins int) {
	if cap(c.bin) < len(units) {
		c.bin = make([]uint32, len(units)+len(units)/4)
	}
	c.bin = c.bin[:len(units)]
	c.in, c.packs, c.least = in, 0, carried
	limit := steps * in.GlobalBatch
	switch in.Packing {
	case Pad, Concat:
		return len(units), c.inOrder(units, limit)
	case Bucketed:
		return len(units), c.shelve(units, limit, urgent)
	}
	if capacity := c.spec.binUnits(in); c.pack == nil || c.pack.capacity != capacity {
		c.pack = newPacker(capacity)
	}
	c.pack.sort(units)
	c.pack.hurry(urgent)
	if c.spec.carry(in) > 0 && len(units) > 0 {
		if bins, ok := c.leave(units, limit, urgent); ok {
			return len(units), bins
		}
	}
	c.pack.limit = limit
	return c.prefix(units)
}

// inOrder gives every segment the next bin, or where documents are concatenated the next with room, and returns the number of bins.
func (c *cutter) inOrder(units []uint32, limit int) (bins int) {
	full := uint64(0)
	for i, u := range units {
		b := i
		if c.in.Packing == Concat {
			b = int(full / uint64(c.spec.binUnits(c.in)))
			full += uint64(u)
		}
		c.bin[i] = noBin // of what another stage carried there may be more than there is room
		if b < limit {
			c.bin[i], bins = uint32(b), b+1
		}
	}
	return bins
}

// leave packs all into as many bins as it fills, leaves the segments that find no room to wait, and those of the worst bins, as far as these are
// more than there are. It reports whether so many may.
func (c *cutter) leave(units []uint32, limit int, urgent []uint32) (bins int, ok bool) {
	total := uint64(0)
	for _, u := range units {
		total += uint64(u)
	}
	c.pack.limit = max(limit, int((total-1)/uint64(c.pack.capacity)))
	c.packs++
	bins, overflow := c.pack.pack(units, len(units), c.bin, false)
	if overflow == 0 && bins <= limit {
		return bins, true
	}
	number, ok := c.worst(bins-limit, urgent)
	if !ok {
		return bins, false
	}
	waits, weight := 0, uint64(0)
	for i, b := range c.bin {
		if b != noBin {
			c.bin[i] = number[b]
		}
		if c.bin[i] == noBin {
			waits++
			weight += uint64(units[i])
		}
	}
	return limit, c.spec.mayWait(c.in, waits, weight)
}

// worst numbers the bins but for that many, which are left out: the emptiest that have no more segments than may wait, with one for each that is
// still to be found, and nothing urgent. It reports whether there are so many, and all that is urgent has a bin.
func (c *cutter) worst(surplus int, urgent []uint32) (number []uint32, ok bool) {
	left := c.pack.residual
	order, holds := make([]uint32, len(left)), make([]int, len(left))
	room := c.spec.Carry
	for _, b := range c.bin {
		if b == noBin {
			room--
		} else {
			holds[b]++
		}
	}
	for _, i := range urgent {
		if c.bin[i] == noBin {
			return nil, false
		}
		holds[c.bin[i]] = c.spec.Carry + 1
	}
	for b := range order {
		order[b] = uint32(b)
	}
	slices.SortFunc(order, func(a, b uint32) int {
		return cmp.Or(cmp.Compare(left[b], left[a]), cmp.Compare(holds[a], holds[b]), cmp.Compare(a, b))
	})
	number = make([]uint32, len(left))
	for _, b := range order {
		if surplus > 0 && holds[b]+surplus-1 <= room {
			number[b] = noBin
			room -= holds[b]
			surplus--
		}
	}
	next := uint32(0)
	for b := range number {
		if number[b] != noBin {
			number[b] = next
			next++
		}
	}
	return number, surplus <= 0
}

// prefix finds the longest prefix that fits. Best-fit-decreasing is not monotone in what it is given, so that means the end of this search:
// all; then all but the last segments that weigh what did not fit; from there in doubling strides to a neighbouring pair of which one
// fits; then halving.
func (c *cutter) prefix(units []uint32) (n, bins int) {
	c.packs++
	bins, overflow := c.pack.pack(units, len(units), c.bin, false)
	if overflow == 0 {
		return len(units), bins
	}
	fits, over := c.bracket(units, overflow)
	for over-fits > 1 {
		mid := fits + (over-fits)/2
		if c.fits(units, mid) {
			fits = mid
		} else {
			over = mid
		}
	}
	c.packs++
	bins, _ = c.pack.pack(units, fits, c.bin, false)
	return fits, bins
}

// bracket returns a prefix that fits and a longer one that does not.
func (c *cutter) bracket(units []uint32, overflow uint64) (fits, over int) {
	over = len(units)
	guess := over
	for cut := uint64(0); guess > c.least && cut < overflow; {
		guess--
		cut += uint64(units[guess])
	}
	if c.fits(units, guess) {
		fits = guess
		for stride := 1; fits+stride < over; stride *= 2 {
			if !c.fits(units, fits+stride) {
				return fits, fits + stride
			}
			fits += stride
		}
		return fits, over
	}
	over = guess
	for stride := 1; ; stride *= 2 {
		fits = max(over-stride, c.least)
		if c.fits(units, fits) {
			return fits, over
		}
		over = fits
	}
}

func (c *cutter) fits(units []uint32, n int) bool {
	if n == c.least {
		return true // all of it may have come here because it does
	}
	c.packs++
	_, overflow := c.pack.pack(units, n, c.bin, true)
	return overflow == 0
}
