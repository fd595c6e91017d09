package planner

import (
	"cmp"
	"slices"

	"millrace"
	"millrace/orchestrator/planner/pack"
)

// strata is in how many parts a window's bins are dealt to its steps. Fewer make the bins of a step more alike, so that its microbatches
// wait less for each other; more make the steps more alike. Four hold G2's goal down to four microbatches a rank, and steps within a tenth.
const strata = 4

// deal deals the window's bins to its steps, fills in their segments in draw order, and returns the bins of each. Sorted by descending sum of
// squared lengths, the bins fall into strata; of each every step gets a run of neighbours, in the order of the steps in one stratum and against
// it in the next. That is no cost model: full bins have equal sums of lengths, so that every model of attention orders them like this.
func (w *window) deal(steps []Selection) (bins []int) {
	batch := w.walk.stage.GlobalBatch
	bins = make([]int, len(steps))
	for k := range bins {
		bins[k] = min(batch, w.bins-k*batch)
	}
	if w.alone(steps) {
		steps[0].Segments, steps[0].Bin, w.given = w.segments[:w.n:w.n], slices.Clone(w.bin), true
		return bins
	}
	step, number := w.stepOf(bins)
	drawn := 0 // step of the window
	for i := range w.n {
		for drawn+1 < len(w.legs) && w.legs[drawn+1].first <= i {
			drawn++
		}
		b := w.bin[i]
		if b == pack.NoBin {
			continue
		}
		sel := &steps[step[b]]
		if sel.Segments == nil {
			most := w.n/len(steps) + w.n/len(steps)/8 + 1
			sel.Segments, sel.Bin = make([]millrace.Segment, 0, most), make([]uint32, 0, most)
		}
		sel.Segments, sel.Bin = append(sel.Segments, w.segments[i]), append(sel.Bin, number[b])
		from := drawn
		if i < len(w.ages) {
			from = -int(w.ages[i])
		}
		sel.Stats.move(max(from-int(step[b]), int(step[b])-from))
	}
	return bins
}

// alone tells whether a window is one step that holds all that was drawn for it, as it was drawn.
func (w *window) alone(steps []Selection) bool {
	return len(steps) == 1 && len(w.legs) == 1 && len(w.ages) == 0 && !slices.Contains(w.bin, pack.NoBin)
}

// stepOf returns of each of the window's bins the step, and its number there, in the window's order.
func (w *window) stepOf(bins []int) (step, number []uint32) {
	step, number = make([]uint32, w.bins), make([]uint32, w.bins)
	switch {
	case w.walk.stage.Packing == millrace.Bucketed:
		for b := range step {
			step[b] = uint32(b / w.walk.stage.GlobalBatch)
		}
	case len(bins) > 1:
		order, next := w.byAttention(), 0
		for s := range strata {
			for k := range bins {
				if s%2 == 1 {
					k = len(bins) - 1 - k
				}
				for range bins[k]*(s+1)/strata - bins[k]*s/strata {
					step[order[next]] = uint32(k)
					next++
				}
			}
		}
	}
	used := make([]uint32, len(bins))
	for b, k := range step {
		number[b] = used[k]
		used[k]++
	}
	return step, number
}

// byAttention returns the window's bins by descending sum of squared lengths, equals in order.
func (w *window) byAttention() []uint32 {
	squares, order := make([]uint64, w.bins), make([]uint32, w.bins)
	for i, b := range w.bin {
		if b != pack.NoBin {
			squares[b] += uint64(w.segments[i].Length) * uint64(w.segments[i].Length)
		}
	}
	for b := range order {
		order[b] = uint32(b)
	}
	slices.SortFunc(order, func(a, b uint32) int { return cmp.Or(cmp.Compare(squares[b], squares[a]), cmp.Compare(a, b)) })
	return order
}
