package place

import (
	"cmp"
	"slices"

	"millrace/orchestrator/planner/cost"
)

// A step with an encoder is balanced in both phases at once, because ranks wait for each other after each phase. The
// cost of a piece and the excess of a bin over its target are vectors (encoder, backbone). Each phase counts in parts
// of its mean bin. Pieces go, most expensive first, to the bin whose excess has the smallest product with their cost.
// That rule keeps the sum of squares least. The search compares the best bins in the directions next to the piece's
// direction. Each direction has a heap, so n pieces take n·log(bins) time, not n·bins.

// directions is the number of steps from backbone only to encoder only.
const directions = 8

// phaseUnit is the cost of the mean bin of a phase.
const phaseUnit = 1 << 24

// vector is a cost by phase: encoder, backbone.
type vector [2]int64

func (v vector) product(o vector) int64 { return v[0]*(o[0]>>8) + v[1]*(o[1]>>8) }

// phasePacking is a packing by cost vectors.
type phasePacking struct {
	*bins
	costs []vector // by piece
	over  []vector // by bin: load − target
	heaps [directions + 1]heap
}

// fillPhases places the other segments. It reports whether every one found room.
func (b *bins) fillPhases() bool {
	p := newPhases(b)
	order := slices.Clone(b.order[b.seeds:])
	slices.SortStableFunc(order, func(i, j uint32) int {
		return cmp.Compare(max(p.costs[j][0], p.costs[j][1]), max(p.costs[i][0], p.costs[i][1]))
	})
	for _, i := range order {
		m, ok := p.choose(i)
		if !ok {
			return false
		}
		b.put(i, m)
		p.over[m][0] += p.costs[i][0]
		p.over[m][1] += p.costs[i][1]
	}
	return true
}

func newPhases(b *bins) *phasePacking {
	p := &phasePacking{bins: b, costs: make([]vector, len(b.pieces)), over: make([]vector, len(b.load))}
	placed := make([]bool, len(b.pieces))
	for i := range b.pieces {
		placed[i] = b.pieces[i].parts > 0
	}
	for _, i := range b.order[:b.seeds] {
		placed[i] = true
	}
	load, target := make([]uint64, len(b.load)), make([]uint64, len(b.load))
	for phase := range 2 {
		of := func(i int) uint64 { return b.encoder[i] }
		if phase == 1 {
			of = func(i int) uint64 { return b.costs[i] - b.encoder[i] }
		}
		clear(load)
		total := uint64(0)
		for i := range b.pieces {
			total += of(i)
			if placed[i] {
				load[b.bin[i]] += of(i)
			}
		}
		mean := max(total/uint64(len(load)), 1)
		scale := func(c uint64) int64 { return int64(min(cost.MulDiv(c, phaseUnit, mean), 1<<36)) }
		for i := range b.pieces {
			p.costs[i][phase] = scale(of(i))
		}
		level(target, b.columnFloors(load), b.reachable(load, total), total)
		for m := range load {
			p.over[m][phase] = scale(load[m]) - scale(target[m])
		}
	}
	for d := range p.heaps {
		for m := range load {
			p.heaps[d].push(slot{p.excess(d, uint32(m)), uint32(m)})
		}
	}
	return p
}

// excess returns a bin's key in a direction. It never falls, so an entry with an outdated key is corrected when it
// comes to the top of its heap.
func (p *phasePacking) excess(direction int, bin uint32) int64 {
	return p.over[bin][0]*int64(direction) + p.over[bin][1]*int64(directions-direction)
}

// choose returns the bin for a piece.
func (p *phasePacking) choose(piece uint32) (bin uint32, ok bool) {
	c, u := p.costs[piece], p.units[piece]
	at := int(c[0] * directions / max(c[0]+c[1], 1))
	best := int64(0)
	for d := max(at-1, 0); d <= min(at+2, directions); d++ {
		m, found := p.firstWithRoom(d, u)
		if product := c.product(p.over[m]); found && (!ok || product < best || product == best && m < bin) {
			best, bin, ok = product, m, true
		}
	}
	return bin, ok
}

// firstWithRoom returns the first bin of a direction that has room.
func (p *phasePacking) firstWithRoom(direction int, units uint32) (bin uint32, ok bool) {
	h := &p.heaps[direction]
	var full []slot
	for len(*h) > 0 && !ok {
		s := (*h)[0]
		switch key := p.excess(direction, s.id); {
		case key != s.key:
			h.replace(slot{key, s.id})
		case p.left[s.id] < units:
			full = append(full, h.pop())
		default:
			bin, ok = s.id, true
		}
	}
	for _, s := range full {
		h.push(s)
	}
	return bin, ok
}
