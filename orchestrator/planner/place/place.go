package place

import (
	"cmp"
	"slices"

	"millrace"
	"millrace/internal/seal"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/cost"
)

// The range of PlaceOptions.CapPermille.
const (
	noSlack   = 1000
	mostSlack = 16000
)

// PlaceOptions is what of the configuration decides where a selection goes, beside the topology.
type Options struct {
	MicroBatch uint32 // rows of a microbatch
	Layout     millrace.Layout
	Balance    millrace.Balance
	Cost       cost.Cost
	// CapPermille is, for Varlen, the most padded tokens in a microbatch, in thousandths of MicroBatch × SequenceLength; 0 means 1000.
	CapPermille uint32
	Local       uint32            // tokens up to which a document may be whole on one context-parallel rank; Varlen
	LastStep    millrace.LastStep // ShortLast leaves out microbatches that are padding on every rank
	// Group is how many data-parallel ranks are balanced among themselves; it divides their number. 0: all of them.
	Group int
	Split Split
}

// Split is which documents are split over data-parallel ranks: their context-parallel degree is a matter of their length. The zero Split
// splits none. The time that slices take to exchange keys and values is not weighed.
type Split struct {
	On          bool   // those dearer than the mean microbatch
	AboveTokens uint32 // of those, only ones of more tokens
}

// Shape returns the shape of the microbatches that these options give.
func (o Options) Shape(sequenceLength uint32, dtype millrace.TokenDtype) millrace.Shape {
	shape := millrace.Shape{SequenceLength: sequenceLength, MicroBatch: o.MicroBatch, Layout: o.Layout, TokenDtype: dtype}
	if o.Layout == millrace.Varlen {
		slack := cmp.Or(o.CapPermille, noSlack)
		shape.CapTokens = uint32(min(uint64(o.MicroBatch)*uint64(sequenceLength)*uint64(slack)/noSlack, 1<<31-1))
	}
	return shape
}

// validate tells whether a selection can be placed, and returns the microbatches of each rank.
func (o Options) validate(sel *planner.Selection, topo millrace.Topology) (microbatches int, err error) {
	if err := topo.Validate(); err != nil {
		return 0, millrace.Errorf(millrace.ErrInvalid, "place step %s: %w", sel.Step, err)
	}
	fail := func(format string, args ...any) (int, error) {
		return 0, millrace.Errorf(millrace.ErrInvalid, "place step %s: "+format, append([]any{sel.Step}, args...)...)
	}
	row := uint64(o.MicroBatch) * uint64(topo.DP())
	switch {
	case row == 0 || uint64(sel.GlobalBatch)%row != 0:
		return fail("global_batch_size %d does not divide by micro_batch_size %d × dp %d", sel.GlobalBatch, o.MicroBatch, topo.DP())
	case o.Layout != millrace.Packed && o.Layout != millrace.Varlen:
		return fail("layout %q is neither packed nor varlen", o.Layout)
	case !slices.Contains([]millrace.Balance{millrace.BalanceFSDP, millrace.BalanceDP, millrace.BalancePP, millrace.BalanceNone}, o.Balance):
		return fail("balance %q is none of fsdp, dp, pp, none", o.Balance)
	case o.CapPermille != 0 && (o.CapPermille < noSlack || o.CapPermille > mostSlack):
		return fail("cap_slack of %d thousandths lies outside %d … %d", o.CapPermille, noSlack, mostSlack)
	case o.Group < 0 || o.Group > 0 && topo.DP()%o.Group != 0:
		return fail("distribute.group %d does not divide the %d data-parallel ranks", o.Group, topo.DP())
	case o.Split.On && o.Layout != millrace.Varlen:
		return fail("split_documents needs layout varlen")
	case o.Layout == millrace.Varlen && uint64(o.MicroBatch)*uint64(sel.SequenceLength)*uint64(cmp.Or(o.CapPermille, noSlack))/noSlack > 1<<31-1:
		return fail("a varlen microbatch of %d sequences of %d tokens has more than 2^31 of them", o.MicroBatch, sel.SequenceLength)
	}
	return sel.GlobalBatch / int(row), nil
}

// Place deals a selection to the topology's data-parallel ranks and seals the plan: content, leaves and placement are set; stream,
// attempt and term are the caller's. Every rank gets the same number of microbatches. It fails only on options that do not fit.
func Plan(sel *planner.Selection, topo millrace.Topology, opt Options) (*millrace.Plan, error) {
	opt.MicroBatch = cmp.Or(sel.MicroBatch, opt.MicroBatch)
	microbatches, err := opt.validate(sel, topo)
	if err != nil {
		return nil, err
	}
	plan := &millrace.Plan{
		Step: sel.Step, Ranks: uint32(topo.DP()), Microbatches: uint32(microbatches), Last: sel.Last, Content: sel.Content,
		SequenceLength: sel.SequenceLength, MicroBatch: opt.MicroBatch,
	}
	var out layout
	columns := 1
	for _, d := range newDeals(sel, topo, opt) {
		d.place(&out)
		columns = max(columns, d.columns)
	}
	if opt.LastStep == millrace.ShortLast && sel.Incomplete {
		plan.Microbatches = uint32(columns)
	}
	plan.Assignments = out.assign(sel, opt, topo.DP(), columns)
	if opt.Local > 0 && topo.CP > 1 && opt.Layout == millrace.Varlen {
		hold(plan.Assignments, topo.CP, opt.Local, cost.Backbone(plan.Assignments, opt.Cost))
	}
	plan.Leaves, plan.Placement = seal.Placement(plan, opt.Shape(sel.SequenceLength, millrace.Int64))
	return plan, nil
}

// layout is where everything of a step goes.
type layout struct {
	pieces []piece
	where  []spot
}

// spot is where a piece goes. Pieces of one row stand in draw order.
type spot struct {
	rank, microbatch, row uint32
}

// assign orders the pieces by (rank, microbatch, row) and, in a row, by draw order, and gives them their start columns, all
// multiples of the pad multiple.
func (o *layout) assign(sel *planner.Selection, opt Options, ranks, columns int) []millrace.Assignment {
	high := int(opt.MicroBatch) // rows of a microbatch
	if opt.Layout == millrace.Varlen {
		high = 1
	}
	line := func(w spot) int { return (int(w.rank)*columns+int(w.microbatch))*high + int(w.row) } // of all rows, in order
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
		a.Rank, a.Microbatch, a.Row, a.Start, a.Part, a.Parts = millrace.Rank(w.rank), w.microbatch, w.row, start[l], p.part, p.parts
		at[l]++
		start[l] += a.Columns(sel.PadMultiple)
	}
	return out
}

// Weighing returns what weighs the plans that Place makes of these.
func (o Options) Weighing(sel *planner.Selection, topo millrace.Topology) cost.Weighing {
	o.MicroBatch = cmp.Or(sel.MicroBatch, o.MicroBatch)
	most := o.MicroBatch * sel.SequenceLength
	if o.Layout == millrace.Varlen {
		most = o.Shape(sel.SequenceLength, "").CapTokens
	}
	return cost.Weighing{Cost: o.Cost, Cap: most, Pad: sel.PadMultiple, Stages: topo.PP}
}
