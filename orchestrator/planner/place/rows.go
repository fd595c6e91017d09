package place

import (
	"millrace/orchestrator/planner/order"
	"slices"

	"millrace"
)

// rows keeps select's bins and deals them. It always succeeds. Bins go by descending cost, so that a column holds bins that are
// alike; an incomplete step fills the first columns and spreads the last over the ranks.
func (d *deal) rows() []spot {
	loads := d.binLoads()
	var bins []spot
	switch d.opt.Balance {
	case millrace.BalanceFSDP:
		bins = d.alignColumns(loads)
	case millrace.BalanceDP:
		bins = d.evenRanks(loads)
	case millrace.BalancePP:
		bins = d.evenMicrobatches(loads)
	default:
		bins = d.inOrder(len(loads))
	}
	d.numberRows(bins)
	where := make([]spot, len(d.bin))
	for i, b := range d.bin {
		where[i] = bins[b]
	}
	return where
}

func (d *deal) binLoads() []uint64 {
	loads := make([]uint64, d.numBins)
	for i, b := range d.bin {
		loads[b] += d.costs[i]
	}
	return loads
}

// beatsRows tells whether there is no need to compare with rows: a step comes within one part in rowsGood of what no packing can go below, or under fsdp to
// no more than the dearest bins of each column cost by themselves.
func (d *deal) beatsRows(where []spot) bool {
	const rowsGood = 512
	if where == nil {
		return false
	}
	takes, floor := d.takes(where), d.floor()
	if d.opt.Balance != millrace.BalanceFSDP || takes <= floor+floor/rowsGood {
		return takes <= floor+floor/rowsGood
	}
	loads := d.binLoads()
	slices.Sort(loads)
	rows, perColumn := uint64(0), d.ranks*int(d.opt.MicroBatch)
	for top := len(loads) - 1; top >= 0; top -= perColumn {
		rows += loads[top]
	}
	return takes <= rows
}

// numberRows gives the bins of each microbatch their rows, in the order of bins; varlen has row 0 alone.
func (d *deal) numberRows(bins []spot) {
	if d.opt.Layout == millrace.Varlen {
		return
	}
	used := make([]uint32, d.ranks*d.columns)
	for i := range bins {
		u := &used[int(bins[i].rank)*d.columns+int(bins[i].microbatch)]
		bins[i].row = *u
		*u++
	}
}

func (d *deal) inOrder(bins int) []spot {
	where := make([]spot, bins)
	for b := range where {
		where[b] = spot{rank: uint32(b % d.ranks), microbatch: uint32(b / d.ranks / int(d.opt.MicroBatch))}
	}
	return where
}

// alignColumns fills column after column with the dearest bins left, evenly over the ranks, and evens out the ranks' sums by
// giving the dearest microbatch of a column to the rank with the least so far.
func (d *deal) alignColumns(loads []uint64) []spot {
	order := order.Descending(loads)
	where := make([]spot, len(loads))
	sums := make([]uint64, d.ranks)
	perColumn := d.ranks * int(d.opt.MicroBatch)
	for c := range d.columns {
		part := order[c*perColumn : min((c+1)*perColumn, len(order))]
		costs := pick(loads, part)
		group := spread(costs, d.ranks, int(d.opt.MicroBatch))
		micro := make([]uint64, d.ranks)
		for i, m := range group {
			micro[m] += costs[i]
		}
		rank := d.dealColumn(micro, sums)
		for i, b := range part {
			where[b] = spot{rank: rank[group[i]], microbatch: uint32(c)}
		}
	}
	return where
}

// dealColumn deals the microbatches of a column, dearest first, to the ranks, least loaded first, and adds to their sums.
func (d *deal) dealColumn(micro, sums []uint64) (rank []uint32) {
	rank = make([]uint32, d.ranks)
	dearest, light := order.Descending(micro), order.Descending(sums)
	slices.Reverse(light)
	for i, m := range dearest {
		rank[m] = light[i]
		sums[light[i]] += micro[m]
	}
	return rank
}

// evenRanks deals the bins to the ranks by LPT, then each rank's bins to its microbatches.
func (d *deal) evenRanks(loads []uint64) []spot {
	order := order.Descending(loads)
	costs := pick(loads, order)
	most := (len(loads) + d.ranks - 1) / d.ranks
	group := spread(costs, d.ranks, most)
	where := make([]spot, len(loads))
	own := make([][]uint32, d.ranks)
	for i, b := range order {
		own[group[i]] = append(own[group[i]], b)
	}
	for r, bins := range own {
		for i, m := range spread(pick(loads, bins), d.columns, int(d.opt.MicroBatch)) {
			where[bins[i]] = spot{rank: uint32(r), microbatch: m}
		}
	}
	return where
}

// evenMicrobatches makes all microbatches alike by LPT, then aligns them in columns.
func (d *deal) evenMicrobatches(loads []uint64) []spot {
	order := order.Descending(loads)
	costs := pick(loads, order)
	group := spread(costs, d.ranks*d.columns, int(d.opt.MicroBatch))
	micro := make([]uint64, d.ranks*d.columns)
	for i, m := range group {
		micro[m] += costs[i]
	}
	spots := d.columnsOf(micro, false)
	where := make([]spot, len(loads))
	for i, b := range order {
		where[b] = spots[group[i]]
	}
	return where
}

// columnsOf sorts whole microbatches (ranks × columns of them) into columns and deals each column. Where they are fixed to their columns
// they are dealt as they stand.
func (d *deal) columnsOf(micro []uint64, fixed bool) []spot {
	order := order.Descending(micro)
	if fixed {
		slices.Sort(order)
	}
	sums := make([]uint64, d.ranks)
	where := make([]spot, len(micro))
	for c := range d.columns {
		part := order[c*d.ranks : (c+1)*d.ranks]
		rank := d.dealColumn(pick(micro, part), sums)
		for i, m := range part {
			where[m] = spot{rank: rank[i], microbatch: uint32(c)}
		}
	}
	return where
}

func pick[T any](of []T, which []uint32) []T {
	out := make([]T, len(which))
	for i, w := range which {
		out[i] = of[w]
	}
	return out
}
