package planner

// arrays packs the segments anew into 1-D microbatches so that columns come out even: column-aware LPT, as PLANNING.md §3.3 has it. Documents dearer than the mean
// microbatch seed the first columns, so that they wait for each other and for nobody else; every microbatch gets a target that its column's dearest document and its token cap
// allow; then the rest goes, dearest first, to where most is missing. The cap is never exceeded. It returns nil where a
// segment finds no room, as may happen with little or no slack: then select's bins have to do.
func (g *deal) arrays() []spot {
	b := newArrayBins(g)
	b.seed()
	b.aim()
	if !b.fill() {
		return nil
	}
	spots := g.columnsOf(b.load)
	where := make([]spot, len(b.bin))
	for i, m := range b.bin {
		where[i] = spots[m]
	}
	return where
}

// arrayBins is the state of one column-aware LPT. Microbatches are numbered column by column.
type arrayBins struct {
	ranks  int
	costs  []uint64 // by segment
	units  []uint32 // by segment, in pad multiples
	order  []uint32 // segments, dearest first
	total  uint64   // sum of costs
	seeds  int      // of the first so many of order, one a microbatch
	bin    []uint32 // by segment
	load   []uint64 // by microbatch: cost
	left   []uint32 // by microbatch: units
	target []uint64 // by microbatch: cost
}

func newArrayBins(g *deal) *arrayBins {
	n, micro := len(g.sel.Segments), g.ranks*g.columns
	b := &arrayBins{
		ranks: g.ranks, costs: make([]uint64, n), units: make([]uint32, n), bin: make([]uint32, n),
		load: make([]uint64, micro), left: make([]uint32, micro), target: make([]uint64, micro),
	}
	lengths := make([]uint32, n)
	for i := range g.sel.Segments {
		l := g.sel.Segments[i].Length
		lengths[i] = l
		b.units[i] = (l + g.sel.PadMultiple - 1) / g.sel.PadMultiple
		b.costs[i] = g.cost.of(l)
		b.total += b.costs[i]
	}
	b.order = sortDescending(lengths, g.sel.SequenceLength, nil, make([]uint32, g.sel.SequenceLength+2))
	room := g.opt.Shape(g.sel.SequenceLength, "").CapTokens / g.sel.PadMultiple
	for m := range b.left {
		b.left[m] = room
	}
	return b
}

// seed puts the documents dearer than the mean into microbatches of their own, column by column.
func (b *arrayBins) seed() {
	mean := b.total / uint64(len(b.load))
	for b.seeds < len(b.load) && b.seeds < len(b.order) && b.costs[b.order[b.seeds]] > mean {
		b.put(b.order[b.seeds], uint32(b.seeds))
		b.seeds++
	}
}

func (b *arrayBins) put(segment, bin uint32) {
	b.bin[segment] = bin
	b.load[bin] += b.costs[segment]
	b.left[bin] -= b.units[segment]
}

// aim sets the targets: that of a seeded column is its dearest document, the rest is filled to a common level like water, and none is more
// than the tokens that still fit would cost if they were like the average of what is left.
func (b *arrayBins) aim() {
	restCost, restUnits := uint64(0), uint64(0)
	for _, i := range b.order[b.seeds:] {
		restCost += b.costs[i]
		restUnits += uint64(b.units[i])
	}
	carry := make([]uint64, len(b.load)) // most that a microbatch can come to
	for m := range carry {
		carry[m] = b.load[m]
		if restUnits > 0 {
			carry[m] += min(mulDiv(uint64(b.left[m]), restCost, restUnits), b.total)
		}
	}
	columnTarget := func(m int) uint64 {
		if first := m - m%b.ranks; first < b.seeds {
			return b.load[first]
		}
		return 0
	}
	low, high := uint64(0), b.total // the level: the least with which everything is taken
	for low < high {
		level, sum := low+(high-low)/2, uint64(0)
		for m := 0; m < len(carry) && sum < b.total; m++ {
			sum += min(max(columnTarget(m), level), carry[m])
		}
		if sum >= b.total {
			high = level
		} else {
			low = level + 1
		}
	}
	for m := range carry {
		b.target[m] = min(max(columnTarget(m), low), carry[m])
	}
}

// fill deals the segments that are left, dearest first, each to the microbatch that most is missing from among those with room. Microbatches
// without room for the present segment wait until segments have become short enough, so that each is passed over once for each time it is filled.
func (b *arrayBins) fill() bool {
	open := make(heap, 0, len(b.load))
	var waiting heap // roomiest first
	for m := range b.load {
		open.push(slot{int64(b.load[m]) - int64(b.target[m]), uint32(m)})
	}
	for _, i := range b.order[b.seeds:] {
		u := b.units[i]
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
		b.put(i, m)
		open.replace(slot{int64(b.load[m]) - int64(b.target[m]), m})
	}
	return true
}
