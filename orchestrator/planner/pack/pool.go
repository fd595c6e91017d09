package pack

import (
	"cmp"
	"slices"
)

const (
	mostPooled = 2048 // segments of a window that is packed from a pool
	soonAge    = 5    // steps; segments that have waited this long come before others
	slackPart  = 192  // a segment begins a bin if at most 1/slackPart of the bin stays free
	widePart   = 64   // the same if its source lags by more than a bin
	lossPart   = 1000 // a window counts as full if its free part is at most 1/lossPart
	mostStale  = 16   // order keeps segments that have a bin until they are this part of it
	mostLooked = 512  // segments that are looked at for one bin
)

// pool fills the bins of a window from more segments than they hold. One segment begins a bin, and the subset of the
// waiting segments that fills it best completes it. Segments that have waited long come first, then long ones: short
// ones complete bins, so they are worth keeping. Sources that lag begin bins, and sources that lead much wait.
type pool struct {
	units    []uint32
	bin      []uint32 // of each segment
	residual []uint32 // by bin
	limit    int      // most bins
	slack    uint32
	capacity uint32
	balance  balance

	order []uint32 // segments without a bin that may complete one
	old   int      // the first ones of order: those that have waited for soonAge steps, oldest first
	stale int      // segments of order that have a bin by now
	loss  []uint32 // by segment: the free units of the last bin that it would have begun

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
	if p, waits := c.placed(units[:m]); p > placed && (placed == 0 || waits == 0) {
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
		bins, placed, waits := c.fillBest(units[:n], limit, ages, urgent)
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

// fillBest packs segments from the pool. If that leaves much room, lengths fit together badly, and long segments would
// wait. So it packs once more with a slack of three times the mean room of a bin, unless bins are less full then. It
// returns the number of bins, their units, and the number of segments that wait.
func (c *Cutter) fillBest(units []uint32, limit int, ages, urgent []uint32) (bins int, placed uint64, waits int) {
	all, slack := uint64(limit)*uint64(c.in.Capacity), c.in.Capacity/slackPart
	bins = c.fill(units, limit, slack, ages, urgent)
	placed, waits = c.placed(units)
	more := min(uint32((all-placed)*3/uint64(limit)), c.in.Capacity/4)
	if waits == 0 || (all-placed)*lossPart <= all || more <= slack {
		return bins, placed, waits
	}
	c.other = append(c.other[:0], c.Bin[:len(units)]...)
	b := c.fill(units, limit, more, ages, urgent)
	if p, w := c.placed(units); p >= placed {
		return b, p, w
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

// fill packs segments into at most `limit` bins. Every bin has a segment if any segment waits.
func (c *Cutter) fill(units []uint32, limit int, slack uint32, ages, urgent []uint32) (bins int) {
	c.Packs++
	p := &c.pool
	p.reset(c, units, limit)
	p.slack = slack
	c.pack.limit, c.pack.order = limit, append(c.pack.order[:0], urgent...)
	c.pack.pack(units, len(units), p.bin, false)
	p.residual = append(p.residual[:0], c.pack.residual...)
	for _, i := range urgent {
		if p.bin[i] != NoBin {
			p.balance.place(i)
		}
	}
	c.pack.sort(units)
	p.arrange(c.pack.order, ages)
	for b := range p.residual {
		p.complete(uint32(b))
	}
	p.compact()
	p.begin()
	return len(p.residual)
}

// reset prepares for segments that have no bin yet.
func (p *pool) reset(c *Cutter, units []uint32, limit int) {
	p.units, p.bin, p.capacity, p.limit, p.stale = units, c.Bin[:len(units)], c.in.Capacity, limit, 0
	p.subsets.reset(p.capacity)
	p.balance.reset(c.in.Mix, units, limit, p.capacity)
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
	p.loss = append(p.loss[:0], make([]uint32, len(p.units))...)
}

// put adds a segment to a bin.
func (p *pool) put(segment, bin uint32) {
	p.bin[segment] = bin
	p.residual[bin] -= p.units[segment]
	p.balance.place(segment)
	p.stale++
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
	p.order, p.old, p.stale = kept, old, 0
}

// complete fills a bin that has segments already.
func (p *pool) complete(bin uint32) {
	for _, i := range p.choose(p.residual[bin], NoBin) {
		p.put(i, bin)
	}
	if p.stale > len(p.order)/mostStale {
		p.compact()
	}
}

// begin opens the other bins.
func (p *pool) begin() {
	for len(p.residual) < p.limit && len(p.order) > 0 {
		first, chosen := p.next()
		b := uint32(len(p.residual))
		p.residual = append(p.residual, p.capacity)
		p.put(first, b)
		for _, i := range chosen {
			p.put(i, b)
		}
		p.compact()
	}
}

// next returns the segment that begins the next bin, and the choice that completes it: the first segment of the order
// whose bin is almost full. Segments of sources that lag come first. If no bin is almost full, more room may stay free,
// twice as much each time.
func (p *pool) next() (first uint32, chosen []uint32) {
	if first, chosen = p.lagging(); first != NoBin {
		return first, chosen
	}
	for slack := p.slack; slack < p.capacity; slack = 2*slack + 1 {
		for _, lag := range []int64{0, -p.balance.bin / 8} {
			if first, chosen = p.fitting(lag, slack); first != NoBin {
				return first, chosen
			}
		}
	}
	first = p.order[0]
	return first, p.choose(p.capacity-p.units[first], first)
}

// lagging returns the first segment, and its choice, of the sources that lag by more than half a bin. The more they
// lag, the more room may stay free. The first one is NoBin if no such segment fills a bin so far.
func (p *pool) lagging() (first uint32, chosen []uint32) {
	most, bin := p.balance.most(), p.balance.bin
	wide := max(p.slack, p.capacity/widePart)
	switch {
	case most > bin/2*3:
		wide *= 4
		fallthrough
	case most > bin:
		if first, chosen = p.fitting(bin, wide); first != NoBin {
			return first, chosen
		}
	}
	for slack := p.slack; slack <= wide && most > bin/2; slack = 2*slack + 1 {
		if first, chosen = p.fitting(bin/2, slack); first != NoBin {
			return first, chosen
		}
	}
	return NoBin, nil
}

// fitting returns the first segment that a choice completes so that at most slack units stay free, and the choice. The
// segment's source has at least the given lag. A segment whose last bin had more free units is not tried again: the
// pool only shrinks.
func (p *pool) fitting(lag int64, slack uint32) (first uint32, chosen []uint32) {
	for _, i := range p.order {
		if p.loss[i] > slack || p.balance.lag(i) < lag {
			continue
		}
		chosen = p.choose(p.capacity-p.units[i], i)
		p.loss[i] = p.rest(i, chosen)
		if p.loss[i] <= slack {
			return i, chosen
		}
	}
	return NoBin, nil
}

// rest returns the units that are free in a bin of a segment and a choice.
func (p *pool) rest(first uint32, chosen []uint32) (rest uint32) {
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

// chooseFirst moves the first candidates that fit to the choice. It stops when the candidates of one subset have twice
// the units of the room that is left. It returns this room.
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

// addCandidates adds the segments that fit into a room and may go: of neighbours with one length only the number that
// fits together. From a long list, which is sorted, it takes every n-th segment, if these fill the room several times.
func (p *pool) addCandidates(from []uint32, room, without uint32) {
	stride := 1
	if len(from) > mostLooked {
		median := uint64(p.units[from[len(from)/2]])
		stride = min(len(from)/mostLooked, max(int(uint64(len(from))*median/(4*uint64(room))), 1))
	}
	same, alike := uint32(0), uint64(0)
	for at := 0; at < len(from); at += stride {
		i := from[at]
		u := p.units[i]
		if u > room || i == without || p.bin[i] != NoBin || !p.balance.mayGo(i) {
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
