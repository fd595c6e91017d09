package place

import (
	"cmp"
	"millrace/orchestrator/planner/cost"
	"slices"
)

// A step with an encoder is balanced in both phases at once, since ranks wait for each other after each. What a piece costs and by how
// much a bin is over its target are vectors (encoder, backbone), each phase in parts of its own mean bin; a piece goes, dearest
// first, to the bin whose vector has the smallest product with it: the rule that keeps the sum of squares least. Which bin that is, is looked for among
// the best of the directions next to the piece's, a heap each: n pieces take n·log(bins) and not n·bins.

// directions are the steps from backbone alone to encoder alone.
const directions = 8

// phaseUnit is a phase's mean bin.
const phaseUnit = 1 << 24

// vector is a cost by phase: encoder, backbone.
type vector [2]int64

func (v vector) product(o vector) int64 { return v[0]*(o[0]>>8) + v[1]*(o[1]>>8) }

// phases is a packing by cost vectors.
type phases struct {
	*bins
	costs []vector // by piece
	over  []vector // by bin: load − target
	heaps [directions + 1]heap
}

// fillPhases deals the segments that are left. It tells whether all found room.
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

func newPhases(b *bins) *phases {
	p := &phases{bins: b, costs: make([]vector, len(b.pieces)), over: make([]vector, len(b.load))}
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
		level(target, b.columnFloors(load), b.carry(load, total), total)
		for m := range load {
			p.over[m][phase] = scale(load[m]) - scale(target[m])
		}
	}
	for d := range p.heaps {
		for m := range load {
			p.heaps[d].push(slot{p.key(d, uint32(m)), uint32(m)})
		}
	}
	return p
}

// key is a bin's place in a direction. It never falls, so that a heap that holds an older one is put right when it comes to the top.
func (p *phases) key(direction int, bin uint32) int64 {
	return p.over[bin][0]*int64(direction) + p.over[bin][1]*int64(directions-direction)
}

// choose returns the bin for a piece.
func (p *phases) choose(piece uint32) (bin uint32, ok bool) {
	c, u := p.costs[piece], p.units[piece]
	at := int(c[0] * directions / max(c[0]+c[1], 1))
	best := int64(0)
	for d := max(at-1, 0); d <= min(at+2, directions); d++ {
		m, found := p.top(d, u)
		if product := c.product(p.over[m]); found && (!ok || product < best || product == best && m < bin) {
			best, bin, ok = product, m, true
		}
	}
	return bin, ok
}

// top returns the first bin of a direction that has room.
func (p *phases) top(direction int, units uint32) (bin uint32, ok bool) {
	h := &p.heaps[direction]
	var full []slot
	for len(*h) > 0 && !ok {
		s := (*h)[0]
		switch key := p.key(direction, s.id); {
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
