package planner

// cutter finds how much of a step's draws its bins hold.
type cutter struct {
	spec  *Spec
	pack  *packer // for bins as those of the last cut
	bin   []uint32
	packs int // of the last cut
}

func newCutter(spec *Spec) *cutter { return &cutter{spec: spec} }

// cut returns how many of the first draws fit the bins of a step of the stage and how many bins they use; c.bin then holds the bin of each.
// Best-fit-decreasing is not monotone in what it is given, so "the longest prefix that fits" means the end of this search: all; then all but the last draws that
// weigh what did not fit; from there in doubling strides to a neighbouring pair of which one fits; then halving.
func (c *cutter) cut(units []uint32, in *Stage) (n, bins int) {
	if cap(c.bin) < len(units) {
		c.bin = make([]uint32, len(units)+len(units)/4)
	}
	c.bin = c.bin[:len(units)]
	c.packs = 0
	if in.Packing == Pad {
		for i := range c.bin {
			c.bin[i] = uint32(i)
		}
		return len(units), len(units)
	}
	if capacity := c.spec.binUnits(in); c.pack == nil || c.pack.capacity != capacity {
		c.pack = newPacker(capacity, in.GlobalBatch)
	}
	c.pack.limit = in.GlobalBatch
	c.pack.sort(units)
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
	for cut := uint64(0); guess > 0 && cut < overflow; {
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
		fits = max(over-stride, 0)
		if c.fits(units, fits) {
			return fits, over
		}
		over = fits
	}
}

func (c *cutter) fits(units []uint32, n int) bool {
	if n == 0 {
		return true
	}
	c.packs++
	_, overflow := c.pack.pack(units, n, c.bin, true)
	return overflow == 0
}
