package baseline

import (
	"slices"

	"millrace/bench/plan/overhead"
)

// ColumnEstimate estimates the least FSDP overhead, in percent over the mean, that whole documents and the token cap
// allow. It is not a bound: it divides documents freely, and it assumes the following placement. Documents dearer than
// the mean microbatch get a microbatch of their own in the first columns. Each column costs as much as its dearest
// document. No microbatch takes more than room tokens of mean cost. All other microbatches cost the same, the level.
// Documents dearer than the level move to the first columns too, as long as that lowers the sum.
func ColumnEstimate(lengths []uint32, m overhead.Model, ranks, columns int, room float64) float64 {
	bins := ranks * columns
	l := &leveller{
		ranks: ranks, model: m, lengths: lengths, order: longestFirst(lengths),
		load: make([]float64, bins), room: make([]float64, bins),
	}
	for _, n := range lengths {
		l.total += m.Of(n)
	}
	for i := range l.room {
		l.room[i] = room
	}
	l.seed(l.total / float64(bins))
	level, least := l.columns()
	for l.seed(level) {
		var columns float64
		level, columns = l.columns()
		least = min(least, columns)
	}
	return 100 * (least/(l.total/float64(ranks)) - 1)
}

// leveller holds a step. Its dearest documents are seeds: each is placed first in a microbatch of the first columns.
type leveller struct {
	ranks      int
	model      overhead.Model
	lengths    []uint32
	order      []int // the dearest first
	seeds      int   // the first seeds documents of order are placed
	total      float64
	load, room []float64 // by microbatch: cost, tokens
}

// seed places the documents that are dearer than a limit. It reports whether it placed any.
func (l *leveller) seed(limit float64) (some bool) {
	for l.seeds < min(len(l.load), len(l.order)) {
		n := l.lengths[l.order[l.seeds]]
		if l.model.Of(n) <= limit {
			break
		}
		l.load[l.seeds] = l.model.Of(n)
		l.room[l.seeds] -= float64(n)
		l.seeds++
		some = true
	}
	return some
}

// columns returns the level of the microbatches without a dear document, and the sum of the columns' costs.
func (l *leveller) columns() (level, sum float64) {
	restCost, restTokens := 0.0, 0.0
	for _, i := range l.order[l.seeds:] {
		restCost += l.model.Of(l.lengths[i])
		restTokens += float64(l.lengths[i])
	}
	most := slices.Clone(l.load)
	for i := range most {
		if restTokens > 0 {
			most[i] += l.room[i] / restTokens * restCost
		}
	}
	reach := func(bin int, level float64) float64 {
		if first := bin - bin%l.ranks; first < l.seeds {
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
	for c := range len(l.load) / l.ranks {
		top := 0.0
		for r := range l.ranks {
			top = max(top, reach(c*l.ranks+r, high))
		}
		sum += top
	}
	return high, sum
}
