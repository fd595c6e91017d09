package pack

import (
	"slices"

	"millrace/orchestrator/planner/order"
)

// packer packs segments into bins by best-fit-decreasing: longest first, each into the fullest bin with room. A bitmap
// has the residual capacities, and an intrusive stack the bins of each, so a segment costs one successor query and two
// stack moves. All sizes are in units of the pad multiple. Ties are settled by draw order among segments, and by the
// most recent change among bins. Not for concurrent use.
type packer struct {
	capacity uint32
	limit    int // most bins

	free     *bitmap  // residual capacities that some bin has
	head     []uint32 // by residual capacity: the bin on top of the stack; valid if free has it
	below    []uint32 // by bin: the bin under it in its stack
	residual []uint32 // by bin

	order []uint32 // segments, longest first, of the last sort
	count []uint32 // by units; scratch of sort
}

// NoBin is the bin of a segment that waits. It also ends a stack.
const NoBin = ^uint32(0)

// newPacker returns the packer of bins of a capacity. Callers set the limit.
func newPacker(capacity uint32) *packer {
	return &packer{
		capacity: capacity,
		free:     newBitmap(capacity + 1),
		head:     make([]uint32, capacity+1),
		count:    make([]uint32, capacity+2),
	}
}

// sort orders the segments for the packs that follow.
func (p *packer) sort(units []uint32) {
	p.order = order.Counted(units, p.capacity, p.order, p.count)
}

// putFirst puts segments, given by descending size, before all others.
func (p *packer) putFirst(urgent []uint32) {
	if len(urgent) == 0 {
		return
	}
	first := make(map[uint32]bool, len(urgent))
	for _, i := range urgent {
		first[i] = true
	}
	rest := slices.DeleteFunc(slices.Clone(p.order), func(i uint32) bool { return first[i] })
	p.order = append(append(p.order[:0], urgent...), rest...)
}

// pack packs the first n of the sorted segments. It writes the bin of each into bin, indexed by draw order; NoBin if no
// bin has room. It returns the number of bins used and the units without a bin; 0 means that all fit. With probe set it
// stops at the first segment that does not fit.
func (p *packer) pack(units []uint32, n int, bin []uint32, probe bool) (bins int, overflow uint64) {
	p.free.clear()
	p.below, p.residual = p.below[:0], p.residual[:0]
	for _, i := range p.order {
		if int(i) >= n {
			continue
		}
		u := units[i]
		b, ok := p.take(u)
		if !ok {
			overflow += uint64(u)
			bin[i] = NoBin
			if probe {
				break
			}
			continue
		}
		bin[i] = b
		left := p.residual[b] - u
		p.residual[b] = left
		if left > 0 {
			p.put(b, left)
		}
	}
	return len(p.residual), overflow
}

// take removes the fullest bin with u free units from its stack, or opens a bin.
func (p *packer) take(u uint32) (bin uint32, ok bool) {
	r, ok := p.free.next(u)
	if !ok {
		if len(p.residual) == p.limit {
			return 0, false
		}
		p.residual = append(p.residual, p.capacity)
		p.below = append(p.below, NoBin)
		return uint32(len(p.residual) - 1), true
	}
	b := p.head[r]
	if p.below[b] == NoBin {
		p.free.remove(r)
	} else {
		p.head[r] = p.below[b]
	}
	return b, true
}

// put pushes a bin onto the stack of its residual capacity.
func (p *packer) put(bin, left uint32) {
	p.below[bin] = NoBin
	if p.has(left) {
		p.below[bin] = p.head[left]
	} else {
		p.free.add(left)
	}
	p.head[left] = bin
}

func (p *packer) has(r uint32) bool { return p.free.levels[0][r>>6]>>(r&63)&1 == 1 }
