package baseline

import (
	"cmp"
	"container/heap"
	"math"
	"math/rand/v2"
	"slices"

	"millrace/bench/plan/overhead"
)

// Shuffled places bins in random microbatches, regardless of their cost.
func Shuffled(cost []float64, ranks, columns int, rng *rand.Rand) *overhead.Grid {
	g := overhead.NewGrid(ranks, columns)
	for at, b := range rng.Perm(len(cost)) {
		g.Load[at] = cost[b]
	}
	return g
}

// InOrder places bins in their order, column after column.
func InOrder(cost []float64, ranks, columns int) *overhead.Grid {
	g := overhead.NewGrid(ranks, columns)
	for b, c := range cost {
		g.Load[b%ranks*columns+b/ranks] = c
	}
	return g
}

// SortedColumns places the dearest bins in the first column, the next ones in the second, and so on. In each column the
// dearest bin goes to the rank that has the least so far.
func SortedColumns(cost []float64, ranks, columns int) *overhead.Grid {
	g := overhead.NewGrid(ranks, columns)
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
			g.Load[r*columns+c] = x
			sums[r] += x
		}
	}
	return g
}

// tray is one bin in a heap; the bin with the least load comes first.
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

// LongestProcessingTime takes the dearest segment first and puts each into the bin with the least load that has room
// for its tokens. It returns the cost of each bin and the part of the tokens that found no room.
func LongestProcessingTime(
	lengths []uint32,
	m overhead.Model,
	bins int,
	room int64,
) (cost []float64, stranded float64) {
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
			all[0].load += m.Of(l)
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

// LongestPhases takes the dearest document first and gives each to the rank with the least weight so far. weight
// combines the costs of both phases into one number. It returns the load of each rank.
func LongestPhases(costs []overhead.Phases, ranks int, weight func(overhead.Phases) float64) []overhead.Phases {
	order := slices.Clone(costs)
	slices.SortFunc(order, func(a, b overhead.Phases) int { return int(math.Copysign(1, weight(b)-weight(a))) })
	least := make(trays, ranks)
	for r := range least {
		least[r].id = r
	}
	loads := make([]overhead.Phases, ranks)
	for _, c := range order {
		top := &least[0]
		loads[top.id] = overhead.Phases{loads[top.id][0] + c[0], loads[top.id][1] + c[1]}
		top.load += weight(c)
		heap.Fix(&least, 0)
	}
	return loads
}

// RandomPhases gives every rank the same number of random documents. It returns the load of each rank.
func RandomPhases(costs []overhead.Phases, ranks int, rng *rand.Rand) []overhead.Phases {
	loads := make([]overhead.Phases, ranks)
	for at, i := range rng.Perm(len(costs)) {
		load := &loads[at%ranks]
		load[0] += costs[i][0]
		load[1] += costs[i][1]
	}
	return loads
}

// Snake takes the dearest segment first and puts them into the bins back and forth. It returns the cost of each bin.
func Snake(lengths []uint32, m overhead.Model, bins int) []float64 {
	cost := make([]float64, bins)
	for at, i := range longestFirst(lengths) {
		b := at % bins
		if at/bins%2 == 1 {
			b = bins - 1 - b
		}
		cost[b] += m.Of(lengths[i])
	}
	return cost
}

// parts is a partition of some segments into bins: base + sums[i] is the cost of bin i. sums are falling and have no
// zeros.
type parts struct {
	sums []float64
	base float64 // common to all bins
}

// partsHeap is a heap of partitions; the one with the largest spread between its bins comes first.
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

// KarmarkarKarp is the largest differencing method (Karmarkar and Karp 1982): it merges the two partitions with the
// largest spread, largest sums with smallest, until one is left. It returns the cost of each bin.
func KarmarkarKarp(lengths []uint32, m overhead.Model, bins int) []float64 {
	h := &partsHeap{bins: bins}
	for _, l := range lengths {
		h.all = append(h.all, parts{sums: []float64{m.Of(l)}})
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

// merge adds the smallest sums of one partition to the largest of the other.
func (p parts) merge(o parts, bins int) parts {
	both := max(len(p.sums)+len(o.sums)-bins, 0) // bins with segments of both
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

// Gap returns by how many percent the largest sum exceeds its lower bound: the larger of the mean and the dearest
// segment.
func Gap(sums []float64, dearest float64) float64 {
	total := 0.0
	for _, x := range sums {
		total += x
	}
	return 100 * (slices.Max(sums)/max(total/float64(len(sums)), dearest) - 1)
}
