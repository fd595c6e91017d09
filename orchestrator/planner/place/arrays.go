package place

import (
	"cmp"
	"millrace/orchestrator/planner/cost"
	"millrace/orchestrator/planner/order"
	"slices"
)

// arrays packs the pieces anew into 1-D microbatches so that columns come out even: column-aware LPT, as PLANNING.md §3.3 has it. Documents dearer than limit, the mean
// microbatch where nothing is sliced, and more where that is better (settle), seed the first columns, so that they wait for each other and for nobody else; every microbatch gets a target that its column's dearest document and its token cap
// allow; then the rest goes, dearest first, to where most is missing. The cap is never exceeded. It returns nil where a
// piece finds no room or a microbatch of a complete step nothing.
func (d *deal) arrays(limit uint64) *bins {
	b := newBins(d, d.ranks*d.columns, d.room())
	b.seed(limit)
	if d.cut && !b.slices() {
		return nil
	}
	if d.encoder != nil {
		if !b.fillPhases() {
			return nil
		}
	} else if b.settle(); !b.fill() {
		return nil
	}
	if b.hollow() {
		return nil
	}
	return b
}

// spots deals microbatches that were packed column by column.
func (b *bins) spots() []spot {
	if b == nil {
		return nil
	}
	spots := b.columnsOf(b.load, b.cut)
	where := make([]spot, len(b.bin))
	for i, m := range b.bin {
		where[i] = spots[m]
	}
	return where
}

// waits is what a step of these microbatches takes where all ranks wait for the dearest of each column.
func (b *bins) waits() uint64 { return sumOfDearest(b.load, b.ranks) }

// bins is the state of one packing by cost under a token cap. Bins are microbatches, column by column, or ranks.
type bins struct {
	*deal
	order  []uint32 // whole segments, dearest first
	seeds  int      // the first so many of order are placed, one a bin
	bin    []uint32 // by piece
	load   []uint64 // by bin: cost
	left   []uint32 // by bin: units
	target []uint64 // by bin: cost
}

func newBins(d *deal, n int, room uint32) *bins {
	b := &bins{deal: d, bin: make([]uint32, len(d.pieces)), load: make([]uint64, n), left: make([]uint32, n), target: make([]uint64, n), order: d.descending()}
	for m := range b.left {
		b.left[m] = room
	}
	return b
}

// descending returns the segments that are whole, dearest first. What a segment costs the backbone grows with its length.
func (d *deal) descending() []uint32 {
	if d.order == nil {
		longest := d.sel.SequenceLength
		lengths := make([]uint32, len(d.pieces))
		for i, p := range d.pieces {
			lengths[i] = d.sel.Segments[p.segment].Length
		}
		d.order = order.Counted(lengths, longest, nil, make([]uint32, longest+2))
		if d.encoder != nil {
			slices.SortStableFunc(d.order, func(i, j uint32) int { return cmp.Compare(d.costs[j], d.costs[i]) })
		}
		if d.cut {
			d.order = slices.DeleteFunc(d.order, func(i uint32) bool { return d.pieces[i].parts > 0 })
		}
	}
	return d.order
}

// seed puts the documents dearer than a limit into bins of their own, column by column.
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

// aim sets the targets: as much as its column's dearest bin has already, the rest filled to a common level like water, and none more
// than the tokens that still fit would cost if they were like the average of what is left.
func (b *bins) aim() (water uint64) {
	return level(b.target, b.columnFloors(b.load), b.carry(b.load, b.total), b.total)
}

// settle sets the targets. Documents dearer than the water make a column dear that was to be level, wherever they go: they are seeds too, as far as that makes the columns
// come to less, or as there are more of them than the last column of seeds has places. Slices have their places already.
func (b *bins) settle() {
	seeds, least := b.seeds, ^uint64(0)
	for more := true; more; {
		water := b.aim()
		if columns := sumOfDearest(b.target, b.ranks); columns < least && !b.spills(water) {
			seeds, least = b.seeds, columns
		}
		more = !b.cut && b.seed(water)
	}
	if b.seeds == seeds {
		return
	}
	for b.seeds > seeds {
		b.seeds--
		b.take(b.order[b.seeds])
	}
	b.aim()
}

// spills tells whether a document dearer than the water is left when the last column of seeds is full of such.
func (b *bins) spills(water uint64) bool {
	next := (b.seeds + b.ranks - 1) / b.ranks * b.ranks
	return next < min(len(b.load), len(b.order)) && b.costs[b.order[next]] > water
}

// columnFloors is what every bin of a column may cost without anybody waiting for it.
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

// carry is the most that each bin can come to, of loads that shall add up to the total.
func (b *bins) carry(load []uint64, total uint64) []uint64 {
	restCost, restUnits := total, b.restUnits()
	for _, c := range load {
		restCost -= c
	}
	carry := slices.Clone(load)
	for m := range carry {
		if restUnits > 0 {
			carry[m] += min(cost.MulDiv(uint64(b.left[m]), restCost, restUnits), total)
		}
	}
	return carry
}

// restUnits is how large everything is that is neither a seed nor a slice: from all of it, in the order of memory.
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

// level sets targets to min(max(floor, water), carry) with the least water that makes their sum reach the total, and returns it.
func level(target, floors, carry []uint64, total uint64) (water uint64) {
	water = least(slices.Max(carry), func(water uint64) bool {
		sum := uint64(0)
		for m := 0; m < len(carry) && sum < total; m++ {
			sum += min(max(floors[m], water), carry[m])
		}
		return sum >= total
	})
	for m := range target {
		target[m] = min(max(floors[m], water), carry[m])
	}
	return water
}

// least returns the least number up to a limit that is enough, the limit where none is; enough must be monotone.
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

// fill deals the segments that are left, dearest first, each to the bin that most is missing from among those with room. Bins
// without room for the present segment wait until segments have become short enough, so that each is passed over once for each time it is filled.
func (b *bins) fill() bool {
	open := make(heap, 0, len(b.load))
	var waiting heap // roomiest first
	for m := range b.load {
		open.push(slot{int64(b.load[m]) - int64(b.target[m]), uint32(m)})
	}
	order := b.order[b.seeds:]
	costs, units := pick(b.costs, order), pick(b.units, order) // side by side: in draw order each would be waited for
	for k, i := range order {
		u := units[k]
		for len(waiting) > 0 && b.left[waiting[0].id] >= u {
			m := waiting.pop().id
			open.push(slot{int64(b.load[m]) - int64(b.target[m]), m})
		}
		for len(open) > 0 && b.left[open[0].id] < u {
			m := open.pop().id
			waiting.push(slot{-int64(b.left[m]), m})
		}
		if len(open) == 0 {
			return false
		}
		m := open[0].id
		b.bin[i] = m
		b.load[m] += costs[k]
		b.left[m] -= u
		open.replace(slot{int64(b.load[m]) - int64(b.target[m]), m})
	}
	return true
}

// hollow tells whether a bin of a complete step is empty.
func (b *bins) hollow() bool { return !b.sel.Incomplete && slices.Contains(b.left, b.room()) }

// sumOfDearest is what a step takes where all ranks wait for the dearest of each column.
func sumOfDearest(micro []uint64, ranks int) (sum uint64) {
	for column := range slices.Chunk(micro, ranks) {
		sum += slices.Max(column)
	}
	return sum
}
