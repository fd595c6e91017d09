package place

import (
	"millrace"
	"millrace/orchestrator/planner/order"
)

// evenSums packs the pieces with even sums of the ranks. If columns are even, the sums nearly are, and no rank waits
// within a step. If the slowest rank is then more than one part in sumsGood above the lower bound, it packs ranks
// first.
func (g *group) evenSums(columns *bins) []position {
	const sumsGood = 4096
	best, floor := columns.positions(), g.lowerBound()
	if best != nil && g.timeOf(best) <= floor+floor/sumsGood {
		return best
	}
	return g.better(best, g.byRank())
}

// byRank packs ranks, then the microbatches of each, both by LPT under the token cap. With pipeline stages, a rank with
// an expensive document gets less, because every stage waits once for its most expensive microbatch. It returns nil if
// a segment finds no room or a microbatch of a complete step stays empty.
func (g *group) byRank() []position {
	room := uint64(g.room()) * uint64(g.columns)
	b := newBins(g, g.ranks, uint32(min(room, 1<<32-1)))
	if g.opt.Balance == millrace.BalancePP && g.stages > 1 {
		b.seed(g.mean())
		b.setPipelineTargets()
	}
	if !b.fill() {
		return nil
	}
	own := make([][]uint32, g.ranks) // by rank: its pieces, most expensive first
	for _, i := range b.order {
		own[b.bin[i]] = append(own[b.bin[i]], i)
	}
	where := make([]position, len(g.pieces))
	micro, column := newBins(g, g.columns, 0), make([]uint32, g.columns)
	for r := range own {
		if !micro.refill(own[r]) {
			return nil
		}
		for c, m := range order.Descending(micro.load) {
			column[m] = uint32(c)
		}
		for _, i := range own[r] {
			where[i] = position{rank: uint32(r), microbatch: column[micro.bin[i]]}
		}
	}
	return where
}

// refill packs other pieces into the emptied bins.
func (b *bins) refill(order []uint32) bool {
	clear(b.load)
	for m := range b.left {
		b.left[m] = b.room()
	}
	b.order, b.seeds = order, 0
	return b.fill() && !b.hasEmpty()
}

// setPipelineTargets sets the ranks' targets so that sum + (stages-1)·(most expensive microbatch) is even.
func (b *bins) setPipelineTargets() {
	mean, most, extra := b.mean(), b.reachable(b.load, b.total), make([]uint64, len(b.load))
	for r, seed := range b.load {
		if seed > mean {
			extra[r] = min(b.rankTime(0, seed-mean), b.total)
		}
	}
	at := func(r int, water uint64) uint64 { return min(max(water-min(water, extra[r]), b.load[r]), most[r]) }
	water := least(2*b.total, func(water uint64) bool {
		sum := uint64(0)
		for r := 0; r < len(most) && sum < b.total; r++ {
			sum += at(r, water)
		}
		return sum >= b.total
	})
	for r := range b.target {
		b.target[r] = at(r, water)
	}
}
