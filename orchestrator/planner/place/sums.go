package place

import (
	"math/bits"
	"millrace"
	"millrace/orchestrator/planner/order"
	"slices"
)

// evenSums packs the pieces so that the ranks' sums come out even. Where columns are even the sums nearly are, and nobody waits within a step; where they leave
// the slowest rank more than one part in sumsGood above what no packing can go below, ranks are packed first.
func (d *deal) evenSums(columns *bins) []spot {
	const sumsGood = 4096
	best, floor := columns.spots(), d.floor()
	if best != nil && d.takes(best) <= floor+floor/sumsGood {
		return best
	}
	return d.better(best, d.byRank())
}

// floor is what no packing takes less than.
func (d *deal) floor() uint64 {
	dearest := uint64(0)
	for _, c := range d.costs {
		dearest = max(dearest, c)
	}
	return max(d.sum(uint64(d.columns)*d.mean(), d.mean()), d.sum(dearest, dearest))
}

// better returns which of two, or the first of equals; one that is nil is none.
func (d *deal) better(a, b []spot) []spot {
	if a == nil || b != nil && d.takes(b) < d.takes(a) {
		return b
	}
	return a
}

// sum is what a step takes a rank: its microbatches, and with pipeline stages the dearest of them once more for each further stage.
func (d *deal) sum(all, dearest uint64) uint64 {
	if d.opt.Balance != millrace.BalancePP {
		return all
	}
	hi, lo := bits.Mul64(dearest, uint64(d.stages-1))
	if hi > 0 || lo > 1<<62 {
		return 1 << 62
	}
	return all + lo
}

// takes is what a step takes where the pieces go there, by the balance in force: all ranks wait for the slowest, after the encoder as well.
func (d *deal) takes(where []spot) (all uint64) {
	load := make([]uint64, d.ranks*d.columns)
	for i, w := range where {
		load[int(w.rank)*d.columns+int(w.microbatch)] += d.costs[i]
	}
	if d.encoder == nil {
		return d.waits(load)
	}
	encoder := make([]uint64, len(load))
	for i, w := range where {
		encoder[int(w.rank)*d.columns+int(w.microbatch)] += d.encoder[i]
	}
	for m, c := range encoder {
		load[m] -= c
	}
	return d.waits(load) + d.waits(encoder)
}

// waits is what a phase takes with these microbatches, rank by rank.
func (d *deal) waits(load []uint64) (slowest uint64) {
	column := make([]uint64, d.columns)
	for own := range slices.Chunk(load, d.columns) {
		all := uint64(0)
		for m, c := range own {
			all += c
			column[m] = max(column[m], c)
		}
		slowest = max(slowest, d.sum(all, slices.Max(own)))
	}
	if d.opt.Balance == millrace.BalanceFSDP {
		return sumOfDearest(column, 1)
	}
	return slowest
}

// byRank packs ranks, then the microbatches of each: by LPT under the token cap, both times. With pipeline
// stages a rank with a dear document gets less, since all stages wait for its dearest microbatch once each. It returns nil where a segment finds no room or
// a microbatch of a complete step nothing.
func (d *deal) byRank() []spot {
	room := uint64(d.room()) * uint64(d.columns)
	b := newBins(d, d.ranks, uint32(min(room, 1<<32-1)))
	if d.opt.Balance == millrace.BalancePP && d.stages > 1 {
		b.seed(d.mean())
		b.aimPipeline()
	}
	if !b.fill() {
		return nil
	}
	own := make([][]uint32, d.ranks) // by rank: its pieces, dearest first
	for _, i := range b.order {
		own[b.bin[i]] = append(own[b.bin[i]], i)
	}
	where := make([]spot, len(d.pieces))
	micro, column := newBins(d, d.columns, 0), make([]uint32, d.columns)
	for r := range own {
		if !micro.again(own[r]) {
			return nil
		}
		for c, m := range order.Descending(micro.load) {
			column[m] = uint32(c)
		}
		for _, i := range own[r] {
			where[i] = spot{rank: uint32(r), microbatch: column[micro.bin[i]]}
		}
	}
	return where
}

// again packs other pieces into the emptied bins.
func (b *bins) again(order []uint32) bool {
	clear(b.load)
	for m := range b.left {
		b.left[m] = b.room()
	}
	b.order, b.seeds = order, 0
	return b.fill() && !b.hollow()
}

// aimPipeline sets the ranks' targets so that sum + (stages-1)·dearest microbatch comes out even.
func (b *bins) aimPipeline() {
	mean, carry, extra := b.mean(), b.carry(b.load, b.total), make([]uint64, len(b.load))
	for r, seed := range b.load {
		if seed > mean {
			extra[r] = min(b.sum(0, seed-mean), b.total)
		}
	}
	at := func(r int, water uint64) uint64 { return min(max(water-min(water, extra[r]), b.load[r]), carry[r]) }
	water := least(2*b.total, func(water uint64) bool {
		sum := uint64(0)
		for r := 0; r < len(carry) && sum < b.total; r++ {
			sum += at(r, water)
		}
		return sum >= b.total
	})
	for r := range b.target {
		b.target[r] = at(r, water)
	}
}
