package place

// arrays packs the pieces anew into 1-D microbatches with even columns, by longest processing time first (LPT). Pieces
// that cost more than limit seed the first columns, one a microbatch, so that their ranks wait for each other only.
// Each microbatch gets a target that its column's most expensive piece and its token cap allow. The other pieces go,
// most expensive first, to the microbatch that is furthest below its target. The cap is never exceeded. arrays returns
// nil if a piece finds no room, or if a microbatch of a complete step stays empty.
func (g *group) arrays(limit uint64) *bins {
	b := newBins(g, g.ranks*g.columns, g.room())
	b.seed(limit)
	if g.cut && !b.placeSlices() {
		return nil
	}
	if g.encoder != nil {
		if !b.fillPhases() {
			return nil
		}
	} else if b.settle(); !b.fill() {
		return nil
	}
	if b.hasEmpty() {
		return nil
	}
	return b
}

// positions assigns microbatches that were packed column by column to ranks.
func (b *bins) positions() []position {
	if b == nil {
		return nil
	}
	spots := b.columnsOf(b.load, b.cut)
	where := make([]position, len(b.bin))
	for i, m := range b.bin {
		where[i] = spots[m]
	}
	return where
}

// columnTime returns the time of a step if all ranks wait for the most expensive microbatch of each column.
func (b *bins) columnTime() uint64 { return sumOfDearest(b.load, b.ranks) }

// setTargets gives each bin a target cost: a common level, or the cost of the most expensive bin in its column if that
// is higher. A target is at most the bin's load plus the cost of its free tokens at the average cost of the rest. It
// returns the level.
func (b *bins) setTargets() (water uint64) {
	return level(b.target, b.columnFloors(b.load), b.reachable(b.load, b.total), b.total)
}

// settle chooses the seeds and sets the targets. A document above the common level raises the cost of every column that
// may hold it. It becomes a seed too, as long as that lowers the sum of the columns. It also becomes one if there are
// more such documents than places in the last column of seeds. Slices are placed already.
func (b *bins) settle() {
	seeds, least := b.seeds, ^uint64(0)
	for more := true; more; {
		water := b.setTargets()
		if columns := sumOfDearest(b.target, b.ranks); columns < least && !b.overflows(water) {
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
	b.setTargets()
}

// overflows reports whether a document above the level is left when the last column of seeds is full of such documents.
func (b *bins) overflows(water uint64) bool {
	next := (b.seeds + b.ranks - 1) / b.ranks * b.ranks
	return next < min(len(b.load), len(b.order)) && b.costs[b.order[next]] > water
}
