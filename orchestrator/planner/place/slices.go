package place

import (
	"millrace/orchestrator/planner/order"
)

// placeSlices places the slices, most expensive documents first: each document in the column with the least load, its
// slices in different bins of that column, the least loaded ones. All slices of a document are then computed at the
// same time. It reports whether all found room.
func (b *bins) placeSlices() bool {
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

// cuts returns the first slice of each split document, most expensive first.
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

// sliceInto places the slices of one document in the first column that has room for them.
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

// sliceColumn places the slices of one document in the least loaded bins of a column that have room, or places none.
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
