package place

import (
	"slices"

	"millrace/orchestrator/planner/order"
)

// columnsOf sorts ranks × columns whole microbatches by cost into columns, and assigns each column to the ranks. fixed
// keeps every microbatch in its column.
func (g *group) columnsOf(micro []uint64, fixed bool) []position {
	order := order.Descending(micro)
	if fixed {
		slices.Sort(order)
	}
	sums := make([]uint64, g.ranks)
	where := make([]position, len(micro))
	for c := range g.columns {
		part := order[c*g.ranks : (c+1)*g.ranks]
		rank := g.assignColumn(pick(micro, part), sums)
		for i, m := range part {
			where[m] = position{rank: rank[i], microbatch: uint32(c)}
		}
	}
	return where
}

// assignColumn assigns the microbatches of a column, most expensive first, to the ranks, least loaded first. It adds
// the costs to the sums of the ranks.
func (g *group) assignColumn(micro, sums []uint64) (rank []uint32) {
	rank = make([]uint32, g.ranks)
	dearest, light := order.Descending(micro), order.Descending(sums)
	slices.Reverse(light)
	for i, m := range dearest {
		rank[m] = light[i]
		sums[light[i]] += micro[m]
	}
	return rank
}

func pick[T any](of []T, which []uint32) []T {
	out := make([]T, len(which))
	for i, w := range which {
		out[i] = of[w]
	}
	return out
}
