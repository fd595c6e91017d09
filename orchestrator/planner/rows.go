package planner

import (
	"cmp"
	"slices"

	"millrace"
)

// rows keeps select's bins and deals them. It always succeeds. Bins go by descending cost, so that a column holds bins that are
// alike; an incomplete step fills the first columns and spreads the last over the ranks.
func (g *deal) rows() []spot {
	loads := make([]uint64, g.sel.NumBins)
	for i := range g.sel.Segments {
		loads[g.sel.Bin[i]] += g.cost.of(g.sel.Segments[i].Length)
	}
	var bins []spot
	switch g.opt.Balance {
	case FSDP:
		bins = g.alignColumns(loads)
	case DP:
		bins = g.evenRanks(loads)
	case PP:
		bins = g.evenMicrobatches(loads)
	default:
		bins = g.inOrder(len(loads))
	}
	g.numberRows(bins)
	where := make([]spot, len(g.sel.Segments))
	for i := range where {
		where[i] = bins[g.sel.Bin[i]]
	}
	return where
}

// numberRows gives the bins of each microbatch their rows, in the order of bins; varlen has row 0 alone.
func (g *deal) numberRows(bins []spot) {
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

func (g *deal) inOrder(bins int) []spot {
	where := make([]spot, bins)
	for b := range where {
		where[b] = spot{rank: uint32(b % g.ranks), microbatch: uint32(b / g.ranks / int(g.opt.MicroBatch))}
	}
	return where
}

// alignColumns fills column after column with the dearest bins left, evenly over the ranks, and evens out the ranks' sums by
// giving the dearest microbatch of a column to the rank with the least so far.
func (g *deal) alignColumns(loads []uint64) []spot {
	order := byDescending(loads)
	where := make([]spot, len(loads))
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
		rank := g.dealColumn(micro, sums)
		for i, b := range part {
			where[b] = spot{rank: rank[group[i]], microbatch: uint32(c)}
		}
	}
	return where
}

// dealColumn deals the microbatches of a column, dearest first, to the ranks, least loaded first, and adds to their sums.
func (g *deal) dealColumn(micro, sums []uint64) (rank []uint32) {
	rank = make([]uint32, g.ranks)
	dearest, light := byDescending(micro), byDescending(sums)
	slices.Reverse(light)
	for i, m := range dearest {
		rank[m] = light[i]
		sums[light[i]] += micro[m]
	}
	return rank
}

// evenRanks deals the bins to the ranks by LPT, then each rank's bins to its microbatches.
func (g *deal) evenRanks(loads []uint64) []spot {
	order := byDescending(loads)
	costs := pick(loads, order)
	most := (len(loads) + g.ranks - 1) / g.ranks
	group := spread(costs, g.ranks, most)
	where := make([]spot, len(loads))
	own := make([][]uint32, g.ranks)
	for i, b := range order {
		own[group[i]] = append(own[group[i]], b)
	}
	for r, bins := range own {
		for i, m := range spread(pick(loads, bins), g.columns, int(g.opt.MicroBatch)) {
			where[bins[i]] = spot{rank: uint32(r), microbatch: m}
		}
	}
	return where
}

// evenMicrobatches makes all microbatches alike by LPT, then aligns them in columns.
func (g *deal) evenMicrobatches(loads []uint64) []spot {
	order := byDescending(loads)
	costs := pick(loads, order)
	group := spread(costs, g.ranks*g.columns, int(g.opt.MicroBatch))
	micro := make([]uint64, g.ranks*g.columns)
	for i, m := range group {
		micro[m] += costs[i]
	}
	spots := g.columnsOf(micro)
	where := make([]spot, len(loads))
	for i, b := range order {
		where[b] = spots[group[i]]
	}
	return where
}

// columnsOf sorts whole microbatches (ranks × columns of them) into columns and deals each column.
func (g *deal) columnsOf(micro []uint64) []spot {
	order := byDescending(micro)
	sums := make([]uint64, g.ranks)
	where := make([]spot, len(micro))
	for c := range g.columns {
		part := order[c*g.ranks : (c+1)*g.ranks]
		rank := g.dealColumn(pick(micro, part), sums)
		for i, m := range part {
			where[m] = spot{rank: rank[i], microbatch: uint32(c)}
		}
	}
	return where
}

// byDescending returns the indices of loads, largest first, equals in index order.
func byDescending(loads []uint64) []uint32 {
	order := make([]uint32, len(loads))
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortFunc(order, func(a, b uint32) int { return cmp.Or(cmp.Compare(loads[b], loads[a]), cmp.Compare(a, b)) })
	return order
}

func pick(loads []uint64, which []uint32) []uint64 {
	out := make([]uint64, len(which))
	for i, w := range which {
		out[i] = loads[w]
	}
	return out
}
