package pack

import (
	"cmp"
	"slices"
)

const (
	mostPooled = 2048 // segments of a window that is packed from a pool
	soonAge    = 5    // segments that have waited so many steps come before others
	mostTries  = 64   // beginnings that are tried for a bin that no choice fills
	triesInAll = 4096 // the same for all bins of a window
	slackPart  = 512  // a bin counts as full if its free part is at most 1/slackPart
	lossPart   = 1000 // and a window if its free part is at most 1/lossPart
)

// pool fills the bins of a window from more segments than they hold. A bin is completed by the subset of the waiting
// segments that fills it best. Segments that have waited long come first, then long ones: short ones complete bins, so
// they are worth keeping. A segment with which no choice fills a bin waits.
type pool struct {
	units    []uint32
	bin      []uint32 // of each segment
	residual []uint32 // by bin
	limit    int      // most bins
	capacity uint32

	order  []uint32 // segments without a bin that may complete one
	old    int      // the first ones of order: those that have waited for soonAge steps, oldest first
	failed []bool   // by segment: no choice fills a bin with it

	subsets    subsets
	candidates []uint32
	chosen     []uint32
}

// fromPool returns n and the number of bins: the window holds the first n segments but those that wait. It takes all
// segments if no more of them wait than may, and otherwise searches for a shorter prefix. If much room is left, or if
// there is no such prefix, it also tries the longest prefix that fits, and takes the fuller bins.
func (c *Cutter) fromPool(units []uint32, limit int, ages, urgent []uint32) (n, bins int) {
	all := uint64(limit) * uint64(c.in.Capacity)
	n, bins, placed := c.mostFilled(units, limit, ages, urgent)
	if n == len(units) && bins < limit || placed > 0 && (all-placed)*lossPart <= all {
		return n, bins
	}
	c.other = append(c.other[:0], c.Bin...)
	c.sortFirst(units, urgent)
	c.pack.limit = limit
	m, b := c.prefix(units)
	if p, _ := c.placed(units[:m]); p > placed {
		return m, b
	}
	copy(c.Bin, c.other)
	return n, bins
}

// mostFilled returns the longest prefix of which no more segments wait than may, its number of bins and its units in
// bins; 0 if there is none.
func (c *Cutter) mostFilled(units []uint32, limit int, ages, urgent []uint32) (n, bins int, placed uint64) {
	few, many := max(len(ages), 1)-1, len(units)+1 // of few, too few segments wait; of many, too many
	for n = len(units); n > few; {
		bins, placed, waits := c.fillOrLeave(units[:n], limit, ages, urgent)
		switch {
		case waits <= c.in.Carry && (bins == limit || n == len(units)):
			return n, bins, placed
		case waits > c.in.Carry:
			many = n
			n = max(n-2*(waits-c.in.Carry), few+(many-few)/2)
		default:
			few = n
			n = few + (many-few)/2
		}
	}
	return 0, 0, 0
}

// fillOrLeave packs segments from the pool. If that leaves much room, it also packs them as far as bins are emptiest to
// wait, and takes the fuller bins. It returns the number of bins, their units, and the number of segments that wait.
func (c *Cutter) fillOrLeave(
	units []uint32, limit int, ages, urgent []uint32,
) (bins int, placed uint64, waits int) {
	bins = c.fill(units, limit, ages, urgent)
	placed, waits = c.placed(units)
	if all := uint64(limit) * uint64(c.in.Capacity); waits == 0 || (all-placed)*lossPart <= all {
		return bins, placed, waits
	}
	c.other = append(c.other[:0], c.Bin[:len(units)]...)
	c.sortFirst(units, urgent)
	if b, ok := c.leave(units, limit, urgent); ok {
		if p, w := c.placed(units); p > placed {
			return b, p, w
		}
	}
	copy(c.Bin, c.other)
	return bins, placed, waits
}

// sortFirst orders segments for the packer: urgent ones first, then longest first.
func (c *Cutter) sortFirst(units, urgent []uint32) {
	c.pack.sort(units)
	c.pack.putFirst(urgent)
}

// placed returns the units of the segments that have a bin, and the number of those that wait.
func (c *Cutter) placed(units []uint32) (placed uint64, waits int) {
	for i, u := range units {
		if c.Bin[i] == NoBin {
			waits++
		} else {
			placed += uint64(u)
		}
	}
	return placed, waits
}

// fill packs segments into at most so many bins. Every bin has a segment if any segment waits.
func (c *Cutter) fill(units []uint32, limit int, ages, urgent []uint32) (bins int) {
	c.Packs++
	p := &c.pool
	p.reset(c, units)
	p.limit = limit
	c.pack.limit, c.pack.order = limit, append(c.pack.order[:0], urgent...)
	c.pack.pack(units, len(units), p.bin, false)
	p.residual = append(p.residual[:0], c.pack.residual...)
	c.pack.sort(units)
	p.arrange(c.pack.order, ages)
	for b := range p.residual {
		p.complete(uint32(b))
	}
	p.begin()
	return len(p.residual)
}

// reset prepares for segments that have no bin yet.
func (p *pool) reset(c *Cutter, units []uint32) {
	p.units, p.bin, p.capacity = units, c.Bin[:len(units)], c.in.Capacity
	p.subsets.reset(p.capacity)
	for i := range p.bin {
		p.bin[i] = NoBin
	}
}

// arrange brings the segments without a bin into order. sorted has all segments, longest first.
func (p *pool) arrange(sorted, ages []uint32) {
	p.order = p.order[:0]
	for _, i := range sorted {
		if p.bin[i] == NoBin {
			p.order = append(p.order, i)
		}
	}
	age := func(i uint32) uint32 {
		if int(i) < len(ages) && ages[i] >= soonAge {
			return ages[i]
		}
		return 0
	}
	slices.SortStableFunc(p.order, func(a, b uint32) int { return cmp.Compare(age(b), age(a)) })
	p.old = 0
	for p.old < len(p.order) && age(p.order[p.old]) > 0 {
		p.old++
	}
	p.failed = append(p.failed[:0], make([]bool, len(p.units))...)
}

// put adds a segment to a bin.
func (p *pool) put(segment, bin uint32) {
	p.bin[segment] = bin
	p.residual[bin] -= p.units[segment]
}

// compact removes the segments that have a bin from order.
func (p *pool) compact() {
	kept, old := p.order[:0], 0
	for at, i := range p.order {
		if p.bin[i] != NoBin {
			continue
		}
		if at < p.old {
			old++
		}
		kept = append(kept, i)
	}
	p.order, p.old = kept, old
}

// complete fills a bin that has segments already.
func (p *pool) complete(bin uint32) {
	for _, i := range p.choose(p.residual[bin], NoBin) {
		p.put(i, bin)
	}
	p.compact()
}

// begin opens the other bins. The first segment of the order with which a choice fills the bin begins it. If there is
// none, the bin gets the best of several choices.
func (p *pool) begin() {
	tries := min(mostTries, max(triesInAll/p.limit, 1))
	for len(p.residual) < p.limit && len(p.order) > 0 {
		first, chosen, ok := p.fitting()
		if !ok {
			first = p.leastLoss(tries)
			chosen = p.choose(p.capacity-p.units[first], first)
		}
		b := uint32(len(p.residual))
		p.residual = append(p.residual, p.capacity)
		p.put(first, b)
		for _, i := range chosen {
			p.put(i, b)
		}
		p.compact()
	}
}

// fitting returns the first segment that a choice completes to a full bin, and the choice. A segment without such a
// choice is not tried again, because the pool only shrinks.
func (p *pool) fitting() (first uint32, chosen []uint32, ok bool) {
	before := NoBin
	for _, i := range p.order {
		if before != NoBin && p.failed[before] && p.units[before] == p.units[i] {
			p.failed[i] = true
		}
		if before = i; p.failed[i] {
			continue
		}
		chosen = p.choose(p.capacity-p.units[i], i)
		if uint64(p.loss(i, chosen))*slackPart <= uint64(p.capacity) {
			return i, chosen, true
		}
		p.failed[i] = true
	}
	return NoBin, nil, false
}

// leastLoss returns the segment, among the first ones of the order, whose bin has the least free room.
func (p *pool) leastLoss(tries int) (first uint32) {
	least := NoBin
	for _, i := range p.order[:min(tries, len(p.order))] {
		if rest := p.loss(i, p.choose(p.capacity-p.units[i], i)); rest < least {
			first, least = i, rest
		}
	}
	return first
}

// loss returns the room that is free in a bin of a segment and a choice.
func (p *pool) loss(first uint32, chosen []uint32) (rest uint32) {
	rest = p.capacity - p.units[first]
	for _, i := range chosen {
		rest -= p.units[i]
	}
	return rest
}

// choose returns the segments that fill so much room best, without the given one.
func (p *pool) choose(room, without uint32) []uint32 {
	if room == 0 {
		return nil
	}
	young := p.order[p.old:]
	at, _ := slices.BinarySearchFunc(young, room, func(i, room uint32) int { return cmp.Compare(room, p.units[i]) })
	p.candidates = p.candidates[:0]
	p.addCandidates(p.order[:p.old], room, without)
	p.addCandidates(young[at:], room, without)
	p.chosen = p.chosen[:0]
	room = p.chooseFirst(room)
	if n := len(p.candidates); n > mostCandidates {
		for k := range mostCandidates {
			p.candidates[k] = p.candidates[k*n/mostCandidates]
		}
		p.candidates = p.candidates[:mostCandidates]
	}
	p.chosen = append(p.chosen, p.subsets.of(room, p.candidates, p.units)...)
	return p.chosen
}

// chooseFirst moves the first candidates that fit to the choice, until as many candidates as a subset is made of have
// twice the units of the room that is left. It returns this room.
func (p *pool) chooseFirst(room uint32) (rest uint32) {
	all := uint64(0)
	for _, i := range p.candidates {
		all += uint64(p.units[i])
	}
	at := 0
	for ; at < len(p.candidates); at++ {
		i, n := p.candidates[at], uint64(len(p.candidates)-at)
		if n <= mostCandidates || all*mostCandidates >= 2*n*uint64(room) {
			break
		}
		all -= uint64(p.units[i])
		if p.units[i] <= room {
			p.chosen = append(p.chosen, i)
			room -= p.units[i]
		}
	}
	p.candidates = p.candidates[at:]
	return room
}

// addCandidates adds the segments that fit into a room: of neighbours with one length only as many as fit together.
func (p *pool) addCandidates(from []uint32, room, without uint32) {
	same, alike := uint32(0), uint64(0)
	for _, i := range from {
		u := p.units[i]
		if u > room || i == without {
			continue
		}
		if u != same {
			same, alike = u, 0
		}
		if alike++; alike*uint64(u) <= uint64(room) {
			p.candidates = append(p.candidates, i)
		}
	}
}
