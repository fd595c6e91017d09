package place

import (
	"slices"

	"millrace/orchestrator/planner/cost"
)

// bins is the state of one packing by cost under a token cap. Bins are microbatches, column by column, or ranks.
type bins struct {
	*group
	order  []uint32 // whole segments, most expensive first
	seeds  int      // the first segments of order, which are placed, one a bin
	bin    []uint32 // by piece
	load   []uint64 // by bin: cost
	left   []uint32 // by bin: free units
	target []uint64 // by bin: cost
}

func newBins(g *group, n int, room uint32) *bins {
	b := &bins{
		group:  g,
		bin:    make([]uint32, len(g.pieces)),
		load:   make([]uint64, n),
		left:   make([]uint32, n),
		target: make([]uint64, n),
		order:  g.descending(),
	}
	for m := range b.left {
		b.left[m] = room
	}
	return b
}

// seed puts the documents that cost more than a limit into bins of their own, column by column. It reports whether
// there was one.
func (b *bins) seed(limit uint64) (some bool) {
	before := b.seeds
	for b.seeds < len(b.load) && b.seeds < len(b.order) && b.costs[b.order[b.seeds]] > limit {
		b.put(b.order[b.seeds], uint32(b.seeds))
		b.seeds++
	}
	return b.seeds > before
}

func (b *bins) put(piece, bin uint32) {
	b.bin[piece] = bin
	b.load[bin] += b.costs[piece]
	b.left[bin] -= b.units[piece]
}

func (b *bins) take(piece uint32) {
	bin := b.bin[piece]
	b.load[bin] -= b.costs[piece]
	b.left[bin] += b.units[piece]
}

// fill places the other segments, most expensive first, each in the bin with room that is furthest below its target. A
// bin without room for the present segment waits until segments are short enough. So fill passes over a bin only once
// between two segments that the bin gets. fill reports whether every segment found room.
func (b *bins) fill() bool {
	key := func(m uint32) int64 { return int64(b.load[m]) - int64(b.target[m]) }
	open := newRace(len(b.load), key)
	var waiting heap // roomiest first
	order := b.order[b.seeds:]
	// copied side by side: reads in draw order would miss the cache
	costs, units := pick(b.costs, order), pick(b.units, order)
	for k, i := range order {
		u := units[k]
		for len(waiting) > 0 && b.left[waiting[0].id] >= u {
			m := waiting.pop().id
			open.set(m, key(m))
		}
		first := open.first()
		for first.key != out && b.left[first.id] < u {
			waiting.push(slot{-int64(b.left[first.id]), first.id})
			open.set(first.id, out)
			first = open.first()
		}
		if first.key == out {
			return false
		}
		m := first.id
		b.bin[i] = m
		b.load[m] += costs[k]
		b.left[m] -= u
		open.set(m, first.key+int64(costs[k]))
	}
	return true
}

// hasEmpty reports whether a bin of a complete step is empty.
func (b *bins) hasEmpty() bool { return !b.sel.Incomplete && slices.Contains(b.left, b.room()) }

// restUnits returns the units of all pieces except seeds and slices. It subtracts these from the sum, because
// that reads memory in order.
func (b *bins) restUnits() (rest uint64) {
	for _, u := range b.units {
		rest += uint64(u)
	}
	for _, i := range b.order[:b.seeds] {
		rest -= uint64(b.units[i])
	}
	for i := 0; b.cut && i < len(b.pieces); i++ {
		if b.pieces[i].parts > 0 {
			rest -= uint64(b.units[i])
		}
	}
	return rest
}

// columnFloors returns, for every bin, the cost of the most expensive bin in its column. A bin below that cost makes no
// rank wait.
func (b *bins) columnFloors(load []uint64) []uint64 {
	floors := make([]uint64, len(load))
	for first := 0; first < len(load); first += b.ranks {
		dearest := slices.Max(load[first : first+b.ranks])
		for m := first; m < first+b.ranks; m++ {
			floors[m] = dearest
		}
	}
	return floors
}

// reachable returns the most that each bin can cost, if the loads add up to the total.
func (b *bins) reachable(load []uint64, total uint64) []uint64 {
	restCost, restUnits := total, b.restUnits()
	for _, c := range load {
		restCost -= c
	}
	most := slices.Clone(load)
	for m := range most {
		if restUnits > 0 {
			most[m] += min(cost.MulDiv(uint64(b.left[m]), restCost, restUnits), total)
		}
	}
	return most
}

// level sets targets to min(max(floor, water), most) with the least water level at which their sum reaches the total.
// It returns the level.
func level(target, floors, most []uint64, total uint64) (water uint64) {
	water = least(slices.Max(most), func(water uint64) bool {
		sum := uint64(0)
		for m := 0; m < len(most) && sum < total; m++ {
			sum += min(max(floors[m], water), most[m])
		}
		return sum >= total
	})
	for m := range target {
		target[m] = min(max(floors[m], water), most[m])
	}
	return water
}

// least returns the least number up to a limit that is enough, or the limit. enough must be monotone.
func least(limit uint64, enough func(uint64) bool) uint64 {
	low, high := uint64(0), limit
	for low < high {
		if mid := low + (high-low)/2; enough(mid) {
			high = mid
		} else {
			low = mid + 1
		}
	}
	return low
}
