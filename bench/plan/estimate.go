package main

import "slices"

// columnEstimate is an estimate of the FSDP overhead, in percent over the mean, that whole documents and the token cap allow. It is no bound: it takes
// documents for a liquid and assumes this way of placing them. Documents dearer than the mean microbatch stand one a microbatch in the first
// columns. Each column costs as much as its dearest document. No microbatch takes more than its room would hold of average tokens. The rest is
// level. Documents dearer than that level move to the first columns too, again and again, while that lowers the sum.
func columnEstimate(lengths []uint32, m model, s shape) float64 {
	l := &leveller{shape: s, lengths: lengths, order: longestFirst(lengths), model: m, load: make([]float64, s.bins()), room: make([]float64, s.bins())}
	for _, n := range lengths {
		l.total += m.of(n)
	}
	for i := range l.room {
		l.room[i] = float64(s.tokens) * float64(s.slack) / 1000
	}
	l.seed(l.total / float64(s.bins()))
	level, least := l.columns()
	for l.seed(level) {
		var columns float64
		level, columns = l.columns()
		least = min(least, columns)
	}
	return 100 * (least/(l.total/float64(s.ranks)) - 1)
}

// leveller is a step whose dearest documents stand in its first columns.
type leveller struct {
	shape      shape
	model      model
	lengths    []uint32
	order      []int // dearest first
	seeds      int
	total      float64
	load, room []float64 // by microbatch: cost, tokens
}

// seed adds the documents dearer than a limit to those that stand in the first columns. It tells whether there are any.
func (l *leveller) seed(limit float64) (some bool) {
	for l.seeds < min(len(l.load), len(l.order)) {
		n := l.lengths[l.order[l.seeds]]
		if l.model.of(n) <= limit {
			break
		}
		l.load[l.seeds] = l.model.of(n)
		l.room[l.seeds] -= float64(n)
		l.seeds++
		some = true
	}
	return some
}

// columns returns to what the rest is level, and what the columns come to.
func (l *leveller) columns() (level, sum float64) {
	restCost, restTokens := 0.0, 0.0
	for _, i := range l.order[l.seeds:] {
		restCost += l.model.of(l.lengths[i])
		restTokens += float64(l.lengths[i])
	}
	most := slices.Clone(l.load)
	for i := range most {
		if restTokens > 0 {
			most[i] += l.room[i] / restTokens * restCost
		}
	}
	reach := func(bin int, level float64) float64 {
		if first := bin - bin%l.shape.ranks; first < l.seeds {
			level = max(level, l.load[first])
		}
		return min(level, most[bin])
	}
	low, high := 0.0, slices.Max(most)
	for range 100 {
		level, sum := (low+high)/2, 0.0
		for i := range most {
			sum += reach(i, level)
		}
		if sum < l.total {
			low = level
		} else {
			high = level
		}
	}
	for c := range l.shape.columns {
		top := 0.0
		for r := range l.shape.ranks {
			top = max(top, reach(c*l.shape.ranks+r, high))
		}
		sum += top
	}
	return high, sum
}
