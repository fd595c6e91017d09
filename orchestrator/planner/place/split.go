package place

import (
	"millrace"
	"millrace/orchestrator/planner/cost"
	"millrace/orchestrator/planner/order"
)

// splitUp packs the pieces with the documents in slices that Split names, so that no slice is dearer than the mean microbatch. Long documents
// hold fewer tokens for their cost, so that with few large slices the token cap would keep other microbatches below the mean: then they are cut finer, until the
// step comes within one part in splitGood of the mean, or no better. It returns nil where nothing is split or finds room.
func (d *deal) splitUp() []spot {
	const splitGood = 256
	var best *bins
	for _, eighths := range [...]uint64{8, 6, 4, 3, 2} {
		limit := cost.MulDiv(d.mean(), eighths, 8)
		cut := d.split(limit)
		if cut == nil {
			continue
		}
		if b := cut.arrays(limit); b != nil && (best == nil || b.waits() < best.waits()) {
			best = b
		}
		if best != nil && best.waits() <= uint64(d.columns)*(d.mean()+d.mean()/splitGood) {
			break
		}
	}
	if best != nil {
		*d = *best.deal
	}
	return best.spots()
}

// split returns the deal with every document that is dearer than the mean in slices of at most limit; nil where there are none. Causal attention is even over a zigzag's
// slices; a document's patches stay with slice 0, which has its first token. What slices cost to exchange keys and values is not weighed.
func (d *deal) split(limit uint64) *deal {
	mean, out := d.mean(), &deal{}
	*out = *d
	out.order, out.cut = nil, false
	out.reserve(len(d.pieces), d.opt.Cost.Phases())
	for i := range d.pieces {
		parts := uint32(1)
		if limit > 0 && d.costs[i] > mean && d.sel.Segments[d.pieces[i].segment].Length > d.opt.Split.AboveTokens {
			parts = uint32(min((d.costs[i]+limit-1)/limit, uint64(d.ranks)))
		}
		out.cut = out.cut || parts > 1
		out.slice(d, i, parts)
	}
	if !out.cut {
		return nil
	}
	return out
}

// slice adds a piece of another deal in so many parts.
func (d *deal) slice(from *deal, at int, parts uint32) {
	encoder := uint64(0)
	if from.encoder != nil {
		encoder = from.encoder[at]
	}
	backbone := from.costs[at] - encoder
	for part := range parts {
		p, units, cost := from.pieces[at], from.units[at], backbone/uint64(parts)
		if uint64(part) < backbone%uint64(parts) {
			cost++
		}
		if parts > 1 {
			p.part, p.parts = part, parts
			a := millrace.Assignment{Segment: d.sel.Segments[p.segment], Parts: parts}
			units = a.Columns(d.sel.PadMultiple) / d.sel.PadMultiple
		}
		d.pieces, d.bin, d.units = append(d.pieces, p), append(d.bin, from.bin[at]), append(d.units, units)
		d.costs = append(d.costs, cost+encoder)
		if d.encoder != nil {
			d.encoder = append(d.encoder, encoder)
		}
		encoder = 0
	}
}

// slices deals the slices, dearest documents first: each document to the column that has least so far, its slices to that column's least
// loaded bins, one each, so that all of them are worked on at the same time. It tells whether all found room.
func (b *bins) slices() bool {
	columns := newHeap(b.columns)
	ranks := make([]heap, b.columns)
	for c := range ranks {
		columns[c].key = 0
		for r := range b.ranks {
			m := c*b.ranks + r
			columns[c].key += int64(b.load[m])
			ranks[c].push(slot{int64(b.load[m]), uint32(m)})
		}
	}
	sorted := heap{}
	for _, s := range columns {
		sorted.push(s)
	}
	for _, first := range b.cuts() {
		if !b.sliceInto(first, &sorted, ranks) {
			return false
		}
	}
	return true
}

// cuts returns the first slice of each document that is split, dearest first.
func (b *bins) cuts() []uint32 {
	var first []uint32
	var costs []uint64
	for i, p := range b.pieces {
		if p.parts > 0 && p.part == 0 {
			first = append(first, uint32(i))
			costs = append(costs, b.costs[i]*uint64(p.parts))
		}
	}
	order := order.Descending(costs)
	for i, at := range order {
		order[i] = first[at]
	}
	return order
}

// sliceInto deals the slices of one document to the first column that takes them.
func (b *bins) sliceInto(first uint32, columns *heap, ranks []heap) bool {
	var passed []slot
	done := false
	for !done && len(*columns) > 0 {
		column := columns.pop()
		added, ok := b.sliceColumn(first, &ranks[column.id])
		column.key += int64(added)
		passed = append(passed, column)
		done = ok
	}
	for _, s := range passed {
		columns.push(s)
	}
	return done
}

// sliceColumn deals the slices of one document to the least loaded bins of a column that have room, or to none.
func (b *bins) sliceColumn(first uint32, ranks *heap) (added uint64, ok bool) {
	parts := b.pieces[first].parts
	var taken, full []slot
	for len(taken) < int(parts) && len(*ranks) > 0 {
		s := ranks.pop()
		if b.left[s.id] >= b.units[first] {
			taken = append(taken, s)
		} else {
			full = append(full, s)
		}
	}
	ok = len(taken) == int(parts)
	for i, s := range taken {
		if ok {
			piece := first + uint32(i)
			b.put(piece, s.id)
			s.key += int64(b.costs[piece])
			added += b.costs[piece]
		}
		ranks.push(s)
	}
	for _, s := range full {
		ranks.push(s)
	}
	return added, ok
}
