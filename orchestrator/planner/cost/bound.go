package cost

import (
	"cmp"
	"math/bits"
	"slices"

	"millrace/orchestrator/planner/order"
)

// columnBound returns a lower bound of the cost of a step under FSDP: the sum over columns of the most expensive
// microbatch. No placement within the token cap costs less. A column is one microbatch of each of R ranks, and T is the
// number of units that a microbatch holds. Write c and u for the cost and the units of a piece, and C for the cost of
// all pieces. M(j) is the cost of the most expensive microbatch of column j; columns are in descending order of it.
//
//  1. M(j) ≥ x(j). columnMinima derives x(j) from the number and the size of the most expensive pieces.
//  2. Choose any price p of a unit. Let L = p·T, let b = max(0, c - p·u) be the bonus of a piece, and let
//     e(j) = max(0, M(j) - L). A microbatch of column j costs at most M(j), and at most L plus its bonuses.
//     So it costs at most min(M(j), L) + min(e(j), its bonuses).
//  3. Choose any t pieces. They are in at most t microbatches, so they use at most the t largest limits e(j). The other
//     pieces use at most their bonuses. Let V(t) be both together. Then C ≤ R · (sum of min(M(j), L)) + V(t).
//  4. So the sum of M(j) is at least C/R + (sum of e(j)) - V(t)/R. This does not fall when an M(j) rises, so x(j) may
//     replace M(j).
//
// The bound is the largest over some prices and over the t most expensive pieces. A better choice would raise it; any
// choice keeps it true. All roundings lower it.
func columnBound(costs []uint64, units []uint32, ranks, columns int, room uint32) uint64 {
	total, apart := uint64(0), uint64(0)
	for _, c := range costs {
		total += c
	}
	order := order.Descending(costs)
	minima := columnMinima(costs, units, order, ranks, columns, room)
	for _, x := range minima {
		apart += x
	}
	bound := max(total/uint64(ranks), apart) // at price 0 the bonuses are the costs
	dense := byCostPerUnit(costs, units)
	for n := 0; n < len(dense); n += 1 + n/16 {
		p := pricing{costs: costs, units: units, cost: costs[dense[n]], unit: max(units[dense[n]], 1)}
		bound = max(bound, total/uint64(ranks)+p.idle(minima, order, dense[:n], uint64(ranks), room))
	}
	return bound
}

// columnMinima returns, in descending order, a lower bound of the most expensive microbatch of each column. The m most
// expensive pieces need at least n microbatches. n follows from their total size, and from the number of pieces of the
// smallest size that one microbatch holds. At least n/R columns then hold a piece that costs at least as much as the
// m-th.
func columnMinima(costs []uint64, units, order []uint32, ranks, columns int, room uint32) []uint64 {
	minima := make([]uint64, 0, columns)
	smallest, size := room, uint64(0)
	for m, i := range order {
		smallest, size = min(smallest, max(units[i], 1)), size+uint64(units[i])
		microbatches := max(divideUp(uint64(m+1), uint64(room/smallest)), divideUp(size, uint64(room)))
		for uint64(len(minima)) < min(uint64(columns), divideUp(microbatches, uint64(ranks))) {
			minima = append(minima, costs[i])
		}
	}
	return minima
}

// pricing is a price of a unit, as the fraction cost/unit.
type pricing struct {
	costs []uint64
	units []uint32
	cost  uint64
	unit  uint32
}

// bonus returns the cost of a piece above the price of its units, rounded up.
func (p *pricing) bonus(piece uint32) uint64 {
	c := p.costs[piece]
	return c - min(c, MulDiv(p.cost, max(uint64(p.units[piece]), 1), uint64(p.unit)))
}

// idle returns the largest (sum of e(j)) - V(t)/R over t. Only the dense pieces have a bonus.
func (p *pricing) idle(minima []uint64, order, dense []uint32, ranks uint64, room uint32) (most uint64) {
	level := MulDiv(p.cost, uint64(room), uint64(p.unit)) + 1
	limits, sum := make([]uint64, 0, len(minima)), uint64(0) // e(j)
	for _, x := range minima {
		if x > level {
			limits = append(limits, x-level)
			sum += x - level
		}
	}
	if len(limits) == 0 {
		return 0
	}
	used := uint64(0) // V(t)
	for _, i := range dense {
		used += p.bonus(i)
	}
	for t := 0; ; t++ {
		if v := divideUp(used, ranks); sum > v {
			most = max(most, sum-v)
		}
		if t == min(len(order), len(limits)*int(ranks)) {
			return most
		}
		used += limits[t/int(ranks)] - p.bonus(order[t])
	}
}

// byCostPerUnit orders the pieces by descending cost of a unit.
func byCostPerUnit(costs []uint64, units []uint32) []uint32 {
	order := make([]uint32, len(costs))
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortFunc(order, func(a, b uint32) int {
		hiA, loA := bits.Mul64(costs[a], max(uint64(units[b]), 1))
		hiB, loB := bits.Mul64(costs[b], max(uint64(units[a]), 1))
		return cmp.Or(cmp.Compare(hiB, hiA), cmp.Compare(loB, loA), cmp.Compare(a, b))
	})
	return order
}

func divideUp(a, b uint64) uint64 { return (a + b - 1) / b }
