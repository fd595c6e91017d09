package pack

import (
	"cmp"
	"slices"
)

const (
	mostExchanges  = 512 // bins of a window, the emptiest ones, that exchange segments
	mostExchanged  = 2   // segments that a bin may give away, the shortest ones
	exchangeMargin = 16  // fewer segments than may wait by this number always wait
)

// exchange lets bins that are not full exchange their shortest segments for waiting ones that fill them better. It
// returns the number and the units of the segments that wait after it.
func (c *Cutter) exchange(units []uint32, limit int, urgent []uint32) (waits int, weight uint64) {
	p := &c.pool
	p.units, p.bin, p.capacity, p.old = units, c.Bin[:len(units)], c.in.Capacity, 0
	p.subsets.reset(p.capacity)
	p.order, p.residual = p.order[:0], slices.Grow(p.residual[:0], limit)[:limit]
	for b := range p.residual {
		p.residual[b] = p.capacity
	}
	for _, i := range c.pack.order {
		if b := p.bin[i]; b == NoBin {
			p.order = append(p.order, i)
		} else {
			p.residual[b] -= units[i]
		}
	}
	p.sortOrder()
	given := p.shortest(c.pack.order[len(urgent):])
	for _, b := range p.emptiest() {
		p.improve(b, given[b], c.in.Carry)
	}
	for _, i := range p.order {
		weight += uint64(units[i])
	}
	return len(p.order), weight
}

// emptiest returns the bins that are not full, as many as exchange segments, the emptiest ones first.
func (p *pool) emptiest() (bins []uint32) {
	for b, left := range p.residual {
		if left > 0 {
			bins = append(bins, uint32(b))
		}
	}
	slices.SortFunc(bins, func(a, b uint32) int {
		return cmp.Or(cmp.Compare(p.residual[b], p.residual[a]), cmp.Compare(a, b))
	})
	return bins[:min(len(bins), mostExchanges)]
}

// shortest returns the segments that each bin that is not full may give away, from segments that are sorted, longest
// first.
func (p *pool) shortest(sorted []uint32) (given [][]uint32) {
	given = make([][]uint32, len(p.residual))
	for _, i := range slices.Backward(sorted) {
		if b := p.bin[i]; b != NoBin && p.residual[b] > 0 && len(given[b]) < mostExchanged {
			given[b] = append(given[b], i)
		}
	}
	return given
}

// improve takes segments out of a bin and fills it with the best choice among them and the waiting ones. It leaves the
// bin as it is if no choice is better, or if too many segments would wait.
func (p *pool) improve(bin uint32, given []uint32, most int) {
	room := p.residual[bin]
	for _, i := range given {
		room += p.units[i]
		p.order = append(p.order, i)
	}
	p.sortOrder()
	rest := room
	chosen := p.choose(room, NoBin)
	for _, i := range chosen {
		rest -= p.units[i]
	}
	if rest < p.residual[bin] && len(p.order)-len(chosen) <= most-exchangeMargin {
		for _, i := range given {
			p.bin[i] = NoBin
		}
		p.residual[bin] = room
		given = chosen
	} else {
		for _, i := range given {
			p.residual[bin] += p.units[i]
		}
	}
	for _, i := range given {
		p.put(i, bin)
	}
	p.compact()
}

// sortOrder sorts the waiting segments, longest first.
func (p *pool) sortOrder() {
	slices.SortFunc(p.order, func(a, b uint32) int {
		return cmp.Or(cmp.Compare(p.units[b], p.units[a]), cmp.Compare(a, b))
	})
}
