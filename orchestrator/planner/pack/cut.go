package pack

import (
	"cmp"
	"slices"

	"millrace"
	"millrace/internal/bucket"
)

// A Window is the bins of several steps of one kind. All sizes are in units of the pad multiple.
type Window struct {
	Packing  millrace.Packing
	Rows     bucket.Rule // with Bucketed
	Capacity uint32      // of a bin
	Batch    int         // bins of a step
	Steps    int
	Carry    int // most segments that may wait for the next window
	// IsPooled: segments wait so that later windows have a choice. Otherwise they wait if they find no room.
	IsPooled bool
	Mix      Mix // used if IsPooled
}

// UsesPool reports whether a window of the given number of segments is packed from a pool. With more segments,
// best-fit-decreasing fills the bins as well as a pool does.
func (w *Window) UsesPool(segments int) bool {
	return w.IsPooled && w.Carry > 0 && w.Packing == millrace.BestFit && segments <= mostPooled
}

// mayWait reports whether the given number of segments, with the given units together, may wait for the next window.
// They must surely find room there: one in each bin of its first step, or all in half of its units.
func (w *Window) mayWait(segments int, units uint64) bool {
	return segments <= w.Carry && (segments <= w.Batch || units <= uint64(w.Batch)*uint64(w.Capacity)/2)
}

// A Cutter finds the segments of a pool that the bins of a window hold. It keeps its memory from one call to the next.
// Not for concurrent use.
type Cutter struct {
	Bin   []uint32 // of each segment, after Cut; NoBin: it waits
	Rows  []Rows   // of each step, with Bucketed and TokenRows: the bins of one step follow those of the one before
	Packs int      // runs of the packer in the last Cut

	in    Window
	pack  *packer // for bins of the last capacity
	pool  pool
	try   []uint32 // bins of a prefix that may not fit
	other []uint32 // bins that may be the result
	least int      // the shortest prefix: the carried segments
}

// Cut returns n and the number of bins: the window holds the first n segments, or leaves some of these to the next
// window. c.Bin then has the bin of each. The first segments were carried from before; ages has the steps that each of
// them has waited. The urgent ones among these are packed before all others. Without carry, or if too many segments
// would wait, the window holds the longest prefix that fits.
func (c *Cutter) Cut(units []uint32, in Window, ages, urgent []uint32) (n, bins int) {
	for _, bins := range []*[]uint32{&c.Bin, &c.try} {
		if cap(*bins) < len(units) {
			*bins = make([]uint32, len(units)+len(units)/4)
		}
		*bins = (*bins)[:len(units)]
	}
	c.in, c.Packs, c.least = in, 0, len(ages)
	limit := in.Steps * in.Batch
	switch in.Packing {
	case millrace.Pad, millrace.Concat:
		return len(units), c.inOrder(units, limit)
	case millrace.Bucketed:
		if in.Rows == bucket.Tokens {
			return c.byLength(units)
		}
		return len(units), c.shelve(units, limit, urgent)
	}
	if c.pack == nil || c.pack.capacity != in.Capacity {
		c.pack = newPacker(in.Capacity)
	}
	if in.UsesPool(len(units)) {
		return c.fromPool(units, limit, ages, urgent)
	}
	c.sortFirst(units, urgent)
	if in.Carry > 0 && len(units) > 0 {
		keep := c.leave
		if in.IsPooled {
			keep = c.topUp
		}
		if bins, ok := keep(units, limit, urgent); ok {
			return len(units), bins
		}
		c.sortFirst(units, urgent)
	}
	c.pack.limit = limit
	return c.prefix(units)
}

// inOrder gives every segment the next bin, or with Concat the next bin with room, and returns the number of bins.
func (c *Cutter) inOrder(units []uint32, limit int) (bins int) {
	full := uint64(0)
	for i, u := range units {
		b := i
		if c.in.Packing == millrace.Concat {
			b = int(full / uint64(c.in.Capacity))
			full += uint64(u)
		}
		c.Bin[i] = NoBin // segments that another stage carried may be more than the bins
		if b < limit {
			c.Bin[i], bins = uint32(b), b+1
		}
	}
	return bins
}

// leave packs all segments into bins, without regard to the window's number of bins. It leaves segments that find no
// room and, if there are more bins than the window has, the segments of the worst bins. ok reports whether all that it
// leaves may wait.
func (c *Cutter) leave(units []uint32, limit int, urgent []uint32) (bins int, ok bool) {
	total := uint64(0)
	for _, u := range units {
		total += uint64(u)
	}
	c.pack.limit = max(limit, int((total-1)/uint64(c.pack.capacity)))
	c.Packs++
	bins, overflow := c.pack.pack(units, len(units), c.Bin, false)
	if overflow == 0 && bins <= limit {
		return bins, true
	}
	held := c.Bin[:len(units)]
	number, ok := c.worst(bins-limit, held, urgent)
	if !ok {
		return bins, false
	}
	waits, weight := 0, uint64(0)
	for i, b := range held {
		if b != NoBin {
			held[i] = number[b]
		}
		if held[i] == NoBin {
			waits++
			weight += uint64(units[i])
		}
	}
	return limit, c.in.mayWait(waits, weight)
}

// worst numbers the bins of the segments, held, and leaves out the `surplus` emptiest ones. A bin is left out only if
// none of its segments is urgent. All its segments must be allowed to wait, and one more for each bin that is still to
// be left out. ok reports whether it found enough bins and every urgent segment has a bin.
func (c *Cutter) worst(surplus int, held, urgent []uint32) (number []uint32, ok bool) {
	left := c.pack.residual
	order, holds := make([]uint32, len(left)), make([]int, len(left))
	room := c.in.Carry
	for _, b := range held {
		if b == NoBin {
			room--
		} else {
			holds[b]++
		}
	}
	for _, i := range urgent {
		if held[i] == NoBin {
			return nil, false
		}
		holds[held[i]] = c.in.Carry + 1
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
			number[b] = NoBin
			room -= holds[b]
			surplus--
		}
	}
	next := uint32(0)
	for b := range number {
		if number[b] != NoBin {
			number[b] = next
			next++
		}
	}
	return number, surplus <= 0
}

// prefix searches for the longest prefix that fits. Best-fit-decreasing is not monotone in its input, so the end of
// this search defines the result. It tries all segments; then all but the last ones whose units overflowed. From there,
// doubling strides find a prefix that fits and a longer one that does not. Then it halves the distance between these
// two.
func (c *Cutter) prefix(units []uint32) (n, bins int) {
	c.Packs++
	bins, overflow := c.pack.pack(units, len(units), c.Bin, false)
	if overflow == 0 {
		return len(units), bins
	}
	p := prefix{Cutter: c, units: units, over: len(units)}
	p.bracket(overflow)
	for p.over-p.n > 1 {
		p.fits(p.n + (p.over-p.n)/2)
	}
	if !p.packed {
		c.Packs++
		p.bins, _ = c.pack.pack(units, p.n, c.Bin, false)
	}
	return p.n, p.bins
}

// prefix is the state of the search.
type prefix struct {
	*Cutter
	units  []uint32
	n      int  // segments that fit; 0: none known yet
	over   int  // more segments, which do not fit
	bins   int  // number of bins for the n segments
	packed bool // Cutter.Bin has their bins
}

// bracket finds a prefix that fits and a longer one that does not.
func (p *prefix) bracket(overflow uint64) {
	guess := p.over
	for cut := uint64(0); guess > p.least && cut < overflow; {
		guess--
		cut += uint64(p.units[guess])
	}
	if p.fits(guess) {
		for stride := 1; p.n+stride < p.over && p.fits(p.n+stride); stride *= 2 {
		}
		return
	}
	for stride := 1; !p.fits(max(p.over-stride, p.least)); stride *= 2 {
	}
}

// fits reports whether a prefix fits, and remembers it.
func (p *prefix) fits(n int) bool {
	if n == p.least {
		p.n, p.packed = n, false
		return true // the carried segments always fit
	}
	p.Packs++
	bins, overflow := p.pack.pack(p.units, n, p.try, true)
	if overflow > 0 {
		p.over = n
		return false
	}
	p.n, p.bins, p.packed = n, bins, true
	p.Bin, p.try = p.try, p.Bin
	return true
}
