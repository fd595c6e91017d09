package place

import (
	"millrace"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/cost"
)

// piece is a segment, or a slice of one that is split over ranks (parts > 0).
type piece struct {
	segment, part, parts uint32
}

// deal is a selection, or the part of one that belongs to a group of ranks, being dealt. A column is one microbatch of every rank of the group.
type deal struct {
	sel     *planner.Selection
	opt     Options
	first   int // rank of the group
	ranks   int
	columns int // as many as hold something
	stages  int // of the pipeline

	pieces  []piece  // in draw order
	bin     []uint32 // by piece: select's bin, from 0 in every group
	numBins int
	costs   []uint64 // by piece: of all phases
	encoder []uint64 // by piece: of the encoder; nil where it has no cost
	units   []uint32 // by piece: pad multiples
	total   uint64   // sum of costs
	cut     bool     // some pieces are slices
	order   []uint32 // see descending
}

// newDeals deals select's bins to the groups of ranks, back and forth: bins that were opened first hold the longest documents.
func newDeals(sel *planner.Selection, topo millrace.Topology, opt Options) []*deal {
	ranks := topo.DP()
	if opt.Group > 0 {
		ranks = opt.Group
	}
	groups := topo.DP() / ranks
	deals := make([]*deal, groups)
	for i := range deals {
		deals[i] = &deal{sel: sel, opt: opt, first: i * ranks, ranks: ranks, stages: topo.PP}
		deals[i].reserve(len(sel.Segments)/groups, opt.Cost.Phases())
	}
	of := make([]*deal, sel.NumBins) // by bin: its group's
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
	for _, d := range deals {
		d.columns = max(1, (d.numBins+perColumn-1)/perColumn)
	}
	return deals
}

func groupOf(bin, groups int) int {
	if g := bin % groups; bin/groups%2 == 0 {
		return g
	}
	return groups - 1 - bin%groups
}

func (d *deal) reserve(n, phases int) {
	n += n / 8
	d.pieces, d.bin, d.costs, d.units = make([]piece, 0, n), make([]uint32, 0, n), make([]uint64, 0, n), make([]uint32, 0, n)
	if phases > 1 {
		d.encoder = make([]uint64, 0, n)
	}
}

func (d *deal) add(segment, bin uint32, weigh *cost.Weigher) {
	s, pad := &d.sel.Segments[segment], d.sel.PadMultiple
	encoder, backbone := weigh.Of(s)
	d.pieces = append(d.pieces, piece{segment: segment})
	d.bin = append(d.bin, bin)
	d.costs = append(d.costs, encoder+backbone)
	d.units = append(d.units, (s.Length+pad-1)/pad)
	d.total += encoder + backbone
	if d.encoder != nil {
		d.encoder = append(d.encoder, encoder)
	}
}

// place adds the group's pieces and spots to what is placed. Select's bins are kept where they cost less than what was packed anew, or nothing else has room; slices are not in them.
func (d *deal) place(out *layout) {
	var where []spot
	if d.opt.Layout == millrace.Varlen && d.opt.Balance != millrace.BalanceNone {
		where = d.repack()
	}
	if !d.cut && !d.beatsRows(where) {
		where = d.better(where, d.rows())
	}
	for i := range where {
		where[i].rank += uint32(d.first)
	}
	if out.where == nil {
		out.pieces, out.where = d.pieces, where
		return
	}
	out.pieces, out.where = append(out.pieces, d.pieces...), append(out.where, where...)
}

// repack packs the segments anew into 1-D microbatches. It returns nil where a segment finds no room, or a microbatch nothing, as may happen with little or no
// slack: then select's bins have to do.
func (d *deal) repack() []spot {
	if d.opt.Split.On && d.ranks > 1 {
		if where := d.splitUp(); where != nil {
			return where
		}
	}
	b := d.arrays(d.mean())
	if d.opt.Balance == millrace.BalanceFSDP || d.encoder != nil {
		return b.spots()
	}
	return d.evenSums(b)
}

// room is how many units a microbatch takes.
func (d *deal) room() uint32 {
	return d.opt.Shape(d.sel.SequenceLength, "").CapTokens / d.sel.PadMultiple
}

// mean is the mean microbatch's cost.
func (d *deal) mean() uint64 { return d.total / uint64(d.ranks*d.columns) }
