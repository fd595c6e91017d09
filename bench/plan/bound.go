package main

import "slices"

// columnLevel is the overhead in percent over the mean that the columns of a step come to where documents stay whole and microbatches keep to the token cap, PLANNING §3.3: documents
// dearer than the mean microbatch stand one a microbatch in the first columns, each column costs what its dearest costs, no microbatch takes
// more than its room would hold of average tokens, and what is left is level. It ignores that documents are no liquid; no plan need reach it.
func columnLevel(lengths []uint32, m model, s shape) float64 {
	order := longestFirst(lengths)
	total := 0.0
	for _, l := range lengths {
		total += m.of(l)
	}
	bins := s.bins()
	load, room := make([]float64, bins), make([]float64, bins)
	for i := range room {
		room[i] = float64(s.tokens) * float64(s.slack) / 1000
	}
	seeds := 0
	for seeds < bins && seeds < len(order) && m.of(lengths[order[seeds]]) > total/float64(bins) {
		load[seeds] = m.of(lengths[order[seeds]])
		room[seeds] -= float64(lengths[order[seeds]])
		seeds++
	}
	restCost, restTokens := 0.0, 0.0
	for _, i := range order[seeds:] {
		restCost += m.of(lengths[i])
		restTokens += float64(lengths[i])
	}
	most := make([]float64, bins)
	for i := range most {
		most[i] = load[i]
		if restTokens > 0 {
			most[i] += room[i] / restTokens * restCost
		}
	}
	reach := func(bin int, level float64) float64 {
		if first := bin - bin%s.ranks; first < seeds {
			level = max(level, load[first])
		}
		return min(level, most[bin])
	}
	low, high := 0.0, slices.Max(most)
	for range 100 {
		level, sum := (low+high)/2, 0.0
		for i := range most {
			sum += reach(i, level)
		}
		if sum < total {
			low = level
		} else {
			high = level
		}
	}
	columns := 0.0
	for c := range s.columns {
		top := 0.0
		for r := range s.ranks {
			top = max(top, reach(c*s.ranks+r, high))
		}
		columns += top
	}
	return 100 * (columns/(total/float64(s.ranks)) - 1)
}
