package place

import (
	"millrace"
	"millrace/orchestrator/planner/order"
)

// rows keeps select's bins and assigns them to ranks. It always succeeds. Bins are taken by descending cost, so that
// the bins of a column are alike. An incomplete step fills the first columns and spreads the last one over the ranks.
func (g *group) rows() []position {
	loads := g.binLoads()
	var bins []position
	switch g.opt.Balance {
	case millrace.BalanceFSDP:
		bins = g.alignColumns(loads)
	case millrace.BalanceDP:
		bins = g.evenRanks(loads)
	case millrace.BalancePP:
		bins = g.evenMicrobatches(loads)
	default:
		bins = g.inOrder(len(loads))
	}
	g.numberRows(bins)
	where := make([]position, len(g.bin))
	for i, b := range g.bin {
		where[i] = bins[b]
	}
	return where
}

func (g *group) binLoads() []uint64 {
	loads := make([]uint64, g.numBins)
	for i, b := range g.bin {
		loads[b] += g.costs[i]
	}
	return loads
}

// numberRows gives the bins of each microbatch their rows, in the order of bins. With varlen there is only row 0.
func (g *group) numberRows(bins []position) {
	if g.opt.Layout == millrace.Varlen {
		return
	}
	used := make([]uint32, g.ranks*g.columns)
	for i := range bins {
		u := &used[int(bins[i].rank)*g.columns+int(bins[i].microbatch)]
		bins[i].row = *u
		*u++
	}
}

func (g *group) inOrder(bins int) []position {
	where := make([]position, bins)
	for b := range where {
		where[b] = position{rank: uint32(b % g.ranks), microbatch: uint32(b / g.ranks / int(g.opt.MicroBatch))}
	}
	return where
}

// alignColumns fills column after column with the most expensive bins that are left, evenly over the ranks. It evens
// out the sums of the ranks: the rank with the least sum gets the most expensive microbatch of a column.
func (g *group) alignColumns(loads []uint64) []position {
	order := order.Descending(loads)
	where := make([]position, len(loads))
	sums := make([]uint64, g.ranks)
	perColumn := g.ranks * int(g.opt.MicroBatch)
	for c := range g.columns {
		part := order[c*perColumn : min((c+1)*perColumn, len(order))]
		costs := pick(loads, part)
		group := spread(costs, g.ranks, int(g.opt.MicroBatch))
		micro := make([]uint64, g.ranks)
		for i, m := range group {
			micro[m] += costs[i]
		}
		rank := g.assignColumn(micro, sums)
		for i, b := range part {
			where[b] = position{rank: rank[group[i]], microbatch: uint32(c)}
		}
	}
	return where
}

// evenRanks assigns the bins to the ranks by LPT, then each rank's bins to its microbatches.
func (g *group) evenRanks(loads []uint64) []position {
	order := order.Descending(loads)
	costs := pick(loads, order)
	most := (len(loads) + g.ranks - 1) / g.ranks
	group := spread(costs, g.ranks, most)
	where := make([]position, len(loads))
	own := make([][]uint32, g.ranks)
	for i, b := range order {
		own[group[i]] = append(own[group[i]], b)
	}
	for r, bins := range own {
		for i, m := range spread(pick(loads, bins), g.columns, int(g.opt.MicroBatch)) {
			where[bins[i]] = position{rank: uint32(r), microbatch: m}
		}
	}
	return where
}

// evenMicrobatches makes all microbatches alike by LPT, then sorts them into columns.
func (g *group) evenMicrobatches(loads []uint64) []position {
	order := order.Descending(loads)
	costs := pick(loads, order)
	group := spread(costs, g.ranks*g.columns, int(g.opt.MicroBatch))
	micro := make([]uint64, g.ranks*g.columns)
	for i, m := range group {
		micro[m] += costs[i]
	}
	spots := g.columnsOf(micro, false)
	where := make([]position, len(loads))
	for i, b := range order {
		where[b] = spots[group[i]]
	}
	return where
}
