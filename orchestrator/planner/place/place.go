package place

import (
	"slices"

	"millrace"
	"millrace/internal/seal"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/cost"
)

// Plan places a selection on the topology's data-parallel ranks and seals the plan. It sets content, leaves and
// placement; the caller sets stream, attempt and term. Every rank gets the same number of microbatches. The only errors
// are options that do not match the selection or the topology.
func Plan(sel *planner.Selection, topo millrace.Topology, opt Options) (*millrace.Plan, error) {
	opt = opt.under(sel)
	microbatches, err := opt.validate(sel, topo)
	if err != nil {
		return nil, err
	}
	plan := &millrace.Plan{
		Step: sel.Step, Ranks: uint32(topo.DP()), Microbatches: uint32(microbatches), Last: sel.Last,
		Content: sel.Content, SequenceLength: sel.SequenceLength, MicroBatch: opt.MicroBatch, Counted: sel.Counted,
	}
	var out placement
	columns := 1
	for _, g := range newGroups(sel, topo, opt) {
		g.placeInto(&out)
		columns = max(columns, g.columns)
	}
	if opt.LastStep == millrace.ShortLast && sel.Incomplete {
		plan.Microbatches = uint32(columns)
	}
	plan.Assignments = out.assign(sel, opt, topo.DP(), columns)
	if opt.Local > 0 && topo.CP > 1 && opt.Layout == millrace.Varlen {
		holdWhole(plan.Assignments, topo.CP, opt.Local, cost.Backbone(plan.Assignments, opt.Cost))
	}
	plan.Leaves, plan.Placement = seal.Placement(plan, opt.Shape(sel.SequenceLength, millrace.Int64))
	return plan, nil
}

// placement is the position of every piece of a step.
type placement struct {
	pieces []piece
	where  []position
}

// assign orders the pieces by (rank, microbatch, row) and draw order. It gives them their start columns, which are
// multiples of the pad multiple.
func (o *placement) assign(sel *planner.Selection, opt Options, ranks, columns int) []millrace.Assignment {
	high := int(opt.MicroBatch) // rows of a microbatch
	if opt.Layout == millrace.Varlen {
		high = 1
	}
	// the number of a row, in the order of the ranks and microbatches
	line := func(w position) int { return (int(w.rank)*columns+int(w.microbatch))*high + int(w.row) }
	at := make([]uint32, ranks*columns*high+1)
	for _, w := range o.where {
		at[line(w)+1]++
	}
	for i := range len(at) - 1 {
		at[i+1] += at[i]
	}
	start := make([]uint32, ranks*columns*high)
	out := make([]millrace.Assignment, len(o.where))
	for i, w := range o.where {
		l, p := line(w), &o.pieces[i]
		a := &out[at[l]]
		a.Segment = sel.Segments[p.segment]
		a.Rank, a.Microbatch, a.Row, a.Start = millrace.Rank(w.rank), w.microbatch, w.row, start[l]
		a.Part, a.Parts = p.part, p.parts
		at[l]++
		start[l] += a.Columns(sel.PadMultiple)
	}
	return out
}

// placeInto adds the group's pieces and positions to a placement. Select's bins are kept if they take less time than
// new microbatches, or if a segment finds no room in these. Select's bins contain no slices.
func (g *group) placeInto(out *placement) {
	var where []position
	if g.opt.Layout == millrace.Varlen && g.opt.Balance != millrace.BalanceNone {
		where = g.repack()
	}
	if !g.cut && !g.beatsRows(where) {
		where = g.better(where, g.rows())
	}
	for i := range where {
		where[i].rank += uint32(g.first)
	}
	if out.where == nil {
		out.pieces, out.where = g.pieces, where
		return
	}
	out.pieces, out.where = append(out.pieces, g.pieces...), append(out.where, where...)
}

// repack packs the segments into new 1-D microbatches. It returns nil if a segment finds no room or a microbatch stays
// empty, which happens with little or no slack.
func (g *group) repack() []position {
	if g.opt.Split.On && g.ranks > 1 {
		if where := g.splitUp(); where != nil {
			return where
		}
	}
	b := g.arrays(g.mean())
	if g.opt.Balance == millrace.BalanceFSDP || g.encoder != nil {
		return b.positions()
	}
	return g.evenSums(b)
}

// beatsRows reports whether a comparison with rows is unnecessary. That is so if the step is within one part in
// rowsGood of the lower bound. Under fsdp it is also so if the step takes no more time than the most expensive bin of
// every column, summed over the columns.
func (g *group) beatsRows(where []position) bool {
	const rowsGood = 512
	if where == nil {
		return false
	}
	takes, floor := g.timeOf(where), g.lowerBound()
	if g.opt.Balance != millrace.BalanceFSDP || takes <= floor+floor/rowsGood {
		return takes <= floor+floor/rowsGood
	}
	loads := g.binLoads()
	slices.Sort(loads)
	rows, perColumn := uint64(0), g.ranks*int(g.opt.MicroBatch)
	for top := len(loads) - 1; top >= 0; top -= perColumn {
		rows += loads[top]
	}
	return takes <= rows
}
