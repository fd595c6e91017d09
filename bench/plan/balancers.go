package main

import (
	"cmp"
	"container/heap"
	"math/rand/v2"
	"slices"
)

// The balancers that plans are compared with: none of the planner's code.

// shuffled deals bins to microbatches at random: cost-blind.
func shuffled(cost []float64, ranks, columns int, rng *rand.Rand) *grid {
	g := newGrid(ranks, columns)
	for at, b := range rng.Perm(len(cost)) {
		g.load[at] = cost[b]
	}
	return g
}

// inOrder deals bins to microbatches as they stand, column after column.
func inOrder(cost []float64, ranks, columns int) *grid {
	g := newGrid(ranks, columns)
	for b, c := range cost {
		g.load[b%ranks*columns+b/ranks] = c
	}
	return g
}

// sortedColumns deals the dearest bins to the first column, and so on; in each the dearest to the rank that has the least so far.
func sortedColumns(cost []float64, ranks, columns int) *grid {
	g := newGrid(ranks, columns)
	order := slices.Clone(cost)
	slices.SortFunc(order, func(a, b float64) int { return cmp.Compare(b, a) })
	sums, poorest := make([]float64, ranks), make([]int, ranks)
	for i := range poorest {
		poorest[i] = i
	}
	for c := range columns {
		slices.SortStableFunc(poorest, func(a, b int) int { return cmp.Compare(sums[a], sums[b]) })
		for i, r := range poorest {
			x := order[c*ranks+i]
			g.load[r*columns+c] = x
			sums[r] += x
		}
	}
	return g
}

// tray is a bin of a heap: the least loaded comes first.
type tray struct {
	load float64
	room int64
	id   int
}

type trays []tray

func (t trays) Len() int { return len(t) }
func (t trays) Less(i, j int) bool {
	return t[i].load < t[j].load || t[i].load == t[j].load && t[i].id < t[j].id
}
func (t trays) Swap(i, j int) { t[i], t[j] = t[j], t[i] }
func (t *trays) Push(x any)   { *t = append(*t, x.(tray)) }
func (t *trays) Pop() any {
	last := (*t)[len(*t)-1]
	*t = (*t)[:len(*t)-1]
	return last
}

// sink moves the first to its place after its load has grown.
func (t trays) sink() { heap.Fix(&t, 0) }

// longestProcessingTime deals segments, dearest first, each to the least loaded of so many bins that has room for its tokens.
func longestProcessingTime(lengths []uint32, m model, bins int, room int64) (cost []float64, stranded float64) {
	all := make(trays, bins)
	for i := range all {
		all[i] = tray{room: room, id: i}
	}
	total, lost := 0.0, 0.0
	var full []tray
	for _, i := range longestFirst(lengths) {
		l := lengths[i]
		total += float64(l)
		for len(all) > 0 && all[0].room < int64(l) {
			full = append(full, heap.Pop(&all).(tray))
		}
		if len(all) == 0 {
			lost += float64(l)
		} else {
			all[0].load += m.of(l)
			all[0].room -= int64(l)
			heap.Fix(&all, 0)
		}
		for _, t := range full {
			heap.Push(&all, t)
		}
		full = full[:0]
	}
	cost = make([]float64, bins)
	for _, t := range all {
		cost[t.id] = t.load
	}
	return cost, lost / total
}

// snake deals segments, dearest first, to the bins back and forth.
func snake(lengths []uint32, m model, bins int) []float64 {
	cost := make([]float64, bins)
	for at, i := range longestFirst(lengths) {
		b := at % bins
		if at/bins%2 == 1 {
			b = bins - 1 - b
		}
		cost[b] += m.of(lengths[i])
	}
	return cost
}

// parts is a set of Karmarkar and Karp's: the sums of a partition in so many bins, largest first and without the zeros, less what all bins have.
type parts struct {
	sums []float64
	base float64
}

type partsHeap struct {
	all  []parts
	bins int
}

func (h *partsHeap) spread(i int) float64 {
	s := h.all[i].sums
	if len(s) < h.bins {
		return s[0]
	}
	return s[0] - s[len(s)-1]
}
func (h *partsHeap) Len() int           { return len(h.all) }
func (h *partsHeap) Less(i, j int) bool { return h.spread(i) > h.spread(j) }
func (h *partsHeap) Swap(i, j int)      { h.all[i], h.all[j] = h.all[j], h.all[i] }
func (h *partsHeap) Push(x any)         { h.all = append(h.all, x.(parts)) }
func (h *partsHeap) Pop() any {
	last := h.all[len(h.all)-1]
	h.all = h.all[:len(h.all)-1]
	return last
}

// karmarkarKarp merges the two partitions that are most uneven, largest sums with smallest, until there is one: the largest differencing method
// (Karmarkar and Karp 1982), with sets that know their zeros by not having them.
func karmarkarKarp(lengths []uint32, m model, bins int) []float64 {
	h := &partsHeap{bins: bins}
	for _, l := range lengths {
		h.all = append(h.all, parts{sums: []float64{m.of(l)}})
	}
	heap.Init(h)
	for len(h.all) > 1 {
		a, b := heap.Pop(h).(parts), heap.Pop(h).(parts)
		heap.Push(h, a.merge(b, bins))
	}
	out := make([]float64, bins)
	for i := range out {
		out[i] = h.all[0].base
		if i < len(h.all[0].sums) {
			out[i] += h.all[0].sums[i]
		}
	}
	return out
}

// merge adds the smallest of one to the largest of the other.
func (p parts) merge(o parts, bins int) parts {
	both := max(len(p.sums)+len(o.sums)-bins, 0) // bins that have something of both
	sums := make([]float64, 0, min(len(p.sums)+len(o.sums), bins))
	sums = append(sums, p.sums[:len(p.sums)-both]...)
	for i := range both {
		sums = append(sums, p.sums[len(p.sums)-both+i]+o.sums[len(o.sums)-1-i])
	}
	sums = append(sums, o.sums[:len(o.sums)-both]...)
	slices.SortFunc(sums, func(a, b float64) int { return cmp.Compare(b, a) })
	out := parts{sums: sums, base: p.base + o.base}
	if len(sums) == bins {
		least := sums[bins-1]
		out.base += least
		for i := range sums {
			sums[i] -= least
		}
		out.sums = slices.Clip(sums[:max(slices.Index(sums, 0), 1)])
	}
	return out
}

// gap is how far the largest of the sums is over what it cannot be below: the mean, or the dearest segment. In percent.
func gap(sums []float64, dearest float64) float64 {
	total := 0.0
	for _, x := range sums {
		total += x
	}
	return 100 * (slices.Max(sums)/max(total/float64(len(sums)), dearest) - 1)
}
