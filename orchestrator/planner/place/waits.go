package place

import (
	"math/bits"
	"slices"

	"millrace"
)

// timeOf returns the predicted time of a step under the balance in force, with the pieces at these positions. All ranks
// wait for the slowest one, after the encoder as well.
func (g *group) timeOf(where []position) (all uint64) {
	load := make([]uint64, g.ranks*g.columns)
	for i, w := range where {
		load[int(w.rank)*g.columns+int(w.microbatch)] += g.costs[i]
	}
	if g.encoder == nil {
		return g.phaseTime(load)
	}
	encoder := make([]uint64, len(load))
	for i, w := range where {
		encoder[int(w.rank)*g.columns+int(w.microbatch)] += g.encoder[i]
	}
	for m, c := range encoder {
		load[m] -= c
	}
	return g.phaseTime(load) + g.phaseTime(encoder)
}

// phaseTime returns the time of one phase. load has the cost of each microbatch, rank by rank.
func (g *group) phaseTime(load []uint64) (slowest uint64) {
	column := make([]uint64, g.columns)
	for own := range slices.Chunk(load, g.columns) {
		all := uint64(0)
		for m, c := range own {
			all += c
			column[m] = max(column[m], c)
		}
		slowest = max(slowest, g.rankTime(all, slices.Max(own)))
	}
	if g.opt.Balance == millrace.BalanceFSDP {
		return sumOfDearest(column, 1)
	}
	return slowest
}

// rankTime returns the time of one rank: its microbatches, and with pipeline stages its most expensive microbatch once
// more for each stage but the first.
func (g *group) rankTime(all, dearest uint64) uint64 {
	if g.opt.Balance != millrace.BalancePP {
		return all
	}
	hi, lo := bits.Mul64(dearest, uint64(g.stages-1))
	if hi > 0 || lo > 1<<62 {
		return 1 << 62
	}
	return all + lo
}

// sumOfDearest returns the time of a step if all ranks wait for the most expensive microbatch of each column.
func sumOfDearest(micro []uint64, ranks int) (sum uint64) {
	for column := range slices.Chunk(micro, ranks) {
		sum += slices.Max(column)
	}
	return sum
}

// lowerBound returns a lower bound of the time of any packing.
func (g *group) lowerBound() uint64 {
	dearest := uint64(0)
	for _, c := range g.costs {
		dearest = max(dearest, c)
	}
	return max(g.rankTime(uint64(g.columns)*g.mean(), g.mean()), g.rankTime(dearest, dearest))
}

// better returns the faster of two placements, the first one if they are equal. nil stands for no placement.
func (g *group) better(a, b []position) []position {
	if a == nil || b != nil && g.timeOf(b) < g.timeOf(a) {
		return b
	}
	return a
}
