package planner

import (
	"cmp"
	"slices"

	"millrace/mixing"
	"millrace/orchestrator/planner/pack"
)

// strata is the number of parts into which a window's bins are sorted before its steps take from each. Fewer parts make
// the bins of one step more alike, so that its microbatches wait less for each other. More parts make the steps more
// alike. With four parts, steps stay within a tenth of each other, and four microbatches a rank stay balanced.
const strata = 4

// byStrata assigns a window's bins to its steps. counts are the bins of each step, squares the sum of squared lengths
// of each bin. Sorted by descending squares, the bins fall into strata. Each step takes a run of neighbours from each
// stratum. The order of the steps reverses from one stratum to the next. That needs no cost model: full bins have equal
// sums of lengths, so every model of attention orders them like their squares.
func byStrata(counts []int, squares []uint64) (step []uint32) {
	step = make([]uint32, len(squares))
	order := make([]uint32, len(squares))
	for b := range order {
		order[b] = uint32(b)
	}
	slices.SortFunc(order,
		func(a, b uint32) int { return cmp.Or(cmp.Compare(squares[b], squares[a]), cmp.Compare(a, b)) })
	next := 0
	for s := range strata {
		for k := range counts {
			if s%2 == 1 {
				k = len(counts) - 1 - k
			}
			for range counts[k]*(s+1)/strata - counts[k]*s/strata {
				step[order[next]] = uint32(k)
				next++
			}
		}
	}
	return step
}

// inOrder assigns a window's bins to its steps in their order, `each` bins to a step.
func inOrder(bins, each int) (step []uint32) {
	step = make([]uint32, bins)
	for b := range step {
		step[b] = uint32(b / each)
	}
	return step
}

// numbered returns each bin's number within its step, in the order of the bins.
func numbered(step []uint32, steps int) (number []uint32) {
	number = make([]uint32, len(step))
	used := make([]uint32, steps)
	for b, k := range step {
		number[b] = used[k]
		used[k]++
	}
	return number
}

// keyRows marks the keys of the orders of steps in windows.
const keyRows = "rows of a window"

// takeRows takes over the rows of the window's steps, which the cutter gives longest first. The steps have an order
// that follows from the window's place in the run, so that lengths do not fall in every window. A last step with free
// rows stays the last.
func (w *window) takeRows(rows []pack.Rows) {
	free := 0
	if n := len(rows); n > 0 && rows[n-1].Segments < int(rows[n-1].Times)*w.replay.stage.GlobalBatch {
		free = 1
	}
	order := mixing.NewPermutation(uint64(len(rows)-free),
		mixing.DeriveKey(uint64(w.replay.state.Step), mixing.Text(keyRows)))
	w.rows, w.counts = make([]pack.Rows, len(rows)), make([]int, len(rows))
	w.stepOf = make([]uint32, 0, w.bins)
	for k := range rows {
		to := order.At(uint64(k))
		w.rows[to], w.counts[to] = rows[k], rows[k].Segments
		w.stepOf = append(w.stepOf, slices.Repeat([]uint32{uint32(to)}, rows[k].Segments)...)
	}
}
