package place

import (
	"cmp"
	"slices"

	"millrace"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/cost"
	"millrace/orchestrator/planner/order"
)

// piece is a segment, or a slice of one that is split over ranks (parts > 0).
type piece struct {
	segment, part, parts uint32
}

// position is the place of a piece. Pieces of one row are in draw order.
type position struct {
	rank, microbatch, row uint32
}

// group is a group of ranks and its part of the selection: all of it, unless Options.Group divides the ranks. A column
// is one microbatch of every rank of the group.
type group struct {
	sel     *planner.Selection
	opt     Options
	first   int // first rank of the group
	ranks   int
	columns int // with segments
	stages  int // of the pipeline

	pieces  []piece  // in draw order
	bin     []uint32 // by piece: select's bin, from 0 in every group
	numBins int
	costs   []uint64 // by piece: of all phases
	encoder []uint64 // by piece: of the encoder; nil if it has no cost
	units   []uint32 // by piece: pad multiples
	total   uint64   // sum of costs
	cut     bool     // some pieces are slices
	order   []uint32 // see descending
}

// newGroups assigns select's bins to the groups of ranks, back and forth, because the first bins hold the longest
// documents.
func newGroups(sel *planner.Selection, topo millrace.Topology, opt Options) []*group {
	ranks := topo.DP()
	if opt.Group > 0 {
		ranks = opt.Group
	}
	groups := topo.DP() / ranks
	deals := make([]*group, groups)
	for i := range deals {
		deals[i] = &group{sel: sel, opt: opt, first: i * ranks, ranks: ranks, stages: topo.PP}
		deals[i].reserve(len(sel.Segments)/groups, opt.Cost.Phases())
	}
	of := make([]*group, sel.NumBins) // by bin: its group
	for b := range of {
		of[b] = deals[groupOf(b, groups)]
		of[b].numBins++
	}
	var size cost.Extent
	for i := range sel.Segments {
		size.Add(&sel.Segments[i])
	}
	weigh := opt.Cost.Weigher(size)
	for i := range sel.Segments {
		b := sel.Bin[i]
		of[b].add(uint32(i), b/uint32(groups), &weigh)
	}
	perColumn := ranks * int(opt.MicroBatch)
	for _, g := range deals {
		g.columns = max(1, (g.numBins+perColumn-1)/perColumn)
	}
	return deals
}

func groupOf(bin, groups int) int {
	if g := bin % groups; bin/groups%2 == 0 {
		return g
	}
	return groups - 1 - bin%groups
}

func (g *group) reserve(n, phases int) {
	n += n / 8
	g.pieces, g.bin = make([]piece, 0, n), make([]uint32, 0, n)
	g.costs, g.units = make([]uint64, 0, n), make([]uint32, 0, n)
	if phases > 1 {
		g.encoder = make([]uint64, 0, n)
	}
}

func (g *group) add(segment, bin uint32, weigh *cost.Weigher) {
	s, pad := &g.sel.Segments[segment], g.sel.PadMultiple
	encoder, backbone := weigh.Of(s)
	g.pieces = append(g.pieces, piece{segment: segment})
	g.bin = append(g.bin, bin)
	g.costs = append(g.costs, encoder+backbone)
	g.units = append(g.units, (s.Length+pad-1)/pad)
	g.total += encoder + backbone
	if g.encoder != nil {
		g.encoder = append(g.encoder, encoder)
	}
}

// room returns the units that a microbatch has room for.
func (g *group) room() uint32 {
	return g.opt.Shape(g.sel.SequenceLength, "").CapTokens / g.sel.PadMultiple
}

// mean returns the mean cost of a microbatch.
func (g *group) mean() uint64 { return g.total / uint64(g.ranks*g.columns) }

// descending returns the whole segments, most expensive first. Costs of the backbone grow with the length, so the
// segments are sorted by counting lengths.
func (g *group) descending() []uint32 {
	if g.order == nil {
		longest := g.sel.SequenceLength
		lengths := make([]uint32, len(g.pieces))
		for i, p := range g.pieces {
			lengths[i] = g.sel.Segments[p.segment].Length
		}
		g.order = order.Counted(lengths, longest, nil, make([]uint32, longest+2))
		if g.encoder != nil {
			slices.SortStableFunc(g.order, func(i, j uint32) int { return cmp.Compare(g.costs[j], g.costs[i]) })
		}
		if g.cut {
			g.order = slices.DeleteFunc(g.order, func(i uint32) bool { return g.pieces[i].parts > 0 })
		}
	}
	return g.order
}
