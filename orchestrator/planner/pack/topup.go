package pack

import (
	"cmp"
	"slices"
)

const (
	keptBin  = 3    // segments of a bin that are kept to fill it up, the shortest ones of the window
	mostKept = 8192 // and most segments of a window; if these are too few for its bins, bins keep no hole
	keptPart = 128  // the kept segments have this part of a window's units, besides those that will wait
)

// topUp packs all segments but the shortest ones best-fit-decreasing, into bins with a hole. Then subsets of the
// shortest segments fill the bins up, and the other short ones wait. ok reports whether all of these may wait.
func (c *Cutter) topUp(units []uint32, limit int, urgent []uint32) (bins int, ok bool) {
	c.Packs++
	p := &c.pool
	p.reset(c, units, limit)
	sorted := c.spare(units, limit, len(urgent))
	spared := len(units) - len(sorted)
	long, hole := c.keep(units, sorted, limit, len(urgent))
	c.packBelow(units, sorted[:long], limit, hole)
	p.order, p.old = p.order[:0], 0
	for _, i := range sorted {
		if p.bin[i] == NoBin {
			p.order = append(p.order, i)
		}
	}
	slices.SortStableFunc(p.order, func(a, b uint32) int { return cmp.Compare(p.units[b], p.units[a]) })
	p.completeAll(limit)
	waits := spared + len(p.order)
	ok = waits <= c.in.Carry && (waits == 0 || !slices.Contains(p.residual, p.capacity))
	for _, i := range urgent {
		ok = ok && p.bin[i] != NoBin
	}
	return len(p.residual), ok
}

// spare returns the packer's order without the segments that wait from the start: long ones, if the last draw was so
// long that too many short ones would wait for it. The first ones of the order are urgent.
func (c *Cutter) spare(units []uint32, limit, urgent int) (sorted []uint32) {
	order := c.pack.order
	more := beyond(units, order, uint64(limit)*uint64(c.in.Capacity))
	for _, i := range order[max(len(order)-c.in.Carry/2, urgent):] {
		more -= min(more, uint64(units[i]))
	}
	if more == 0 {
		return order
	}
	sorted = append(make([]uint32, 0, len(order)), order[:urgent]...)
	for _, i := range order[urgent:] {
		if u := uint64(units[i]); u <= more {
			more -= u
			continue
		}
		sorted = append(sorted, i)
	}
	return sorted
}

// keep returns the number of sorted segments that are packed first, and the units of the hole that they leave in every
// bin. Urgent segments, the first ones, are packed first.
func (c *Cutter) keep(units, sorted []uint32, limit, urgent int) (long int, hole uint32) {
	all := uint64(limit) * uint64(c.in.Capacity)
	waits, few := beyond(units, sorted, all), limit*keptBin
	if long = len(sorted); waits == 0 {
		return long, 0
	}
	sum := uint64(0)
	for ; long > urgent && len(sorted)-long < mostKept; long-- {
		if sum >= all/keptPart+waits && (len(sorted)-long >= few || few > mostKept) {
			break
		}
		sum += uint64(units[sorted[long-1]])
	}
	if sum > waits && few <= mostKept {
		hole = uint32((sum - waits) / uint64(limit) * 7 / 8) // the packer leaves more room
	}
	return long, hole
}

// beyond returns the units of segments that exceed a room.
func beyond(units, segments []uint32, room uint64) (more uint64) {
	for _, i := range segments {
		more += uint64(units[i])
	}
	return more - min(more, room)
}

// packBelow packs sorted segments so that every bin keeps a hole, except bins that one segment fills.
func (c *Cutter) packBelow(units, from []uint32, limit int, hole uint32) {
	p, capacity := &c.pool, c.pack.capacity
	p.residual = p.residual[:0]
	rest := make([]uint32, 0, len(from))
	for _, i := range from {
		if units[i] <= capacity-hole || len(p.residual) == limit {
			rest = append(rest, i)
			continue
		}
		p.bin[i] = uint32(len(p.residual))
		p.residual = append(p.residual, capacity-units[i])
	}
	single := uint32(len(p.residual))
	c.pack.capacity, c.pack.limit, c.pack.order = capacity-hole, limit-int(single), rest
	c.pack.pack(units, len(units), p.bin, false)
	c.pack.capacity = capacity
	for _, left := range c.pack.residual {
		p.residual = append(p.residual, left+hole)
	}
	for _, i := range rest {
		if p.bin[i] != NoBin {
			p.bin[i] += single
		}
	}
	for _, i := range from {
		if p.bin[i] != NoBin {
			p.balance.place(i)
		}
	}
}

// completeAll completes the bins that are not full, the fullest ones first. If segments wait, it opens bins up to the
// limit.
func (p *pool) completeAll(limit int) {
	for len(p.order) > 0 && len(p.residual) < limit {
		p.residual = append(p.residual, p.capacity)
	}
	var bins []uint32
	for b, left := range p.residual {
		if left > 0 {
			bins = append(bins, uint32(b))
		}
	}
	slices.SortFunc(bins, func(a, b uint32) int {
		return cmp.Or(cmp.Compare(p.residual[a], p.residual[b]), cmp.Compare(a, b))
	})
	for _, b := range bins {
		p.complete(b)
	}
	p.compact()
}
