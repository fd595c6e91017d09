package place

import (
	"cmp"
	"slices"

	"millrace"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/cost"
)

// The range of Options.CapPermille.
const (
	noSlack   = 1000
	mostSlack = 16000
)

// Options are the settings that decide the placement of a selection, beside the topology.
type Options struct {
	MicroBatch uint32 // rows of a microbatch
	Layout     millrace.Layout
	Balance    millrace.Balance
	Cost       cost.Cost
	// CapPermille bounds the padded tokens of a Varlen microbatch, in thousandths of MicroBatch × SequenceLength; 0
	// means 1000.
	CapPermille uint32
	Local       uint32            // tokens up to which a document may be whole on one context-parallel rank; Varlen
	LastStep    millrace.LastStep // ShortLast leaves out microbatches that are padding on every rank
	// Group is the number of data-parallel ranks that are balanced among themselves. It divides their number. 0: all of
	// them.
	Group int
	Split Split
}

// Split names the documents that are split over data-parallel ranks. Their number of parts follows from their cost. The
// zero Split splits none. The time in which the parts exchange keys and values is not counted.
type Split struct {
	On          bool   // documents that cost more than the mean microbatch
	AboveTokens uint32 // of these, only documents with more tokens
}

// Shape returns the shape of the microbatches that these options give.
func (o Options) Shape(sequenceLength uint32, dtype millrace.TokenDtype) millrace.Shape {
	shape := millrace.Shape{
		SequenceLength: sequenceLength,
		MicroBatch:     o.MicroBatch,
		Layout:         o.Layout,
		TokenDtype:     dtype,
	}
	if o.Layout == millrace.Varlen {
		slack := cmp.Or(o.CapPermille, noSlack)
		shape.CapTokens = uint32(min(uint64(o.MicroBatch)*uint64(sequenceLength)*uint64(slack)/noSlack, 1<<31-1))
	}
	return shape
}

// validate returns the microbatches of each rank, or an error if the selection cannot be placed.
func (o Options) validate(sel *planner.Selection, topo millrace.Topology) (microbatches int, err error) {
	if err := topo.Validate(); err != nil {
		return 0, millrace.Errorf(millrace.ErrInvalid, "place step %s: %w", sel.Step, err)
	}
	fail := func(format string, args ...any) (int, error) {
		return 0, millrace.Errorf(millrace.ErrInvalid, "place step %s: "+format, append([]any{sel.Step}, args...)...)
	}
	row, tokens := uint64(o.MicroBatch)*uint64(topo.DP()), uint64(o.MicroBatch)*uint64(sel.SequenceLength)
	balances := []millrace.Balance{millrace.BalanceFSDP, millrace.BalanceDP, millrace.BalancePP, millrace.BalanceNone}
	switch {
	case row == 0 || uint64(sel.GlobalBatch)%row != 0:
		return fail("global_batch_size %d does not divide by micro_batch_size %d × dp %d", sel.GlobalBatch,
			o.MicroBatch, topo.DP())
	case o.Layout != millrace.Packed && o.Layout != millrace.Varlen:
		return fail("layout %q is neither packed nor varlen", o.Layout)
	case !slices.Contains(balances, o.Balance):
		return fail("balance %q is none of fsdp, dp, pp, none", o.Balance)
	case o.CapPermille != 0 && (o.CapPermille < noSlack || o.CapPermille > mostSlack):
		return fail("cap_slack of %d thousandths lies outside %d … %d", o.CapPermille, noSlack, mostSlack)
	case o.Group < 0 || o.Group > 0 && topo.DP()%o.Group != 0:
		return fail("distribute.group %d does not divide the %d data-parallel ranks", o.Group, topo.DP())
	case o.Split.On && o.Layout != millrace.Varlen:
		return fail("split_documents needs layout varlen")
	case o.Layout == millrace.Varlen && tokens*uint64(cmp.Or(o.CapPermille, noSlack))/noSlack > 1<<31-1:
		return fail("a varlen microbatch of %d sequences of %d tokens has more than 2^31 tokens", o.MicroBatch,
			sel.SequenceLength)
	}
	return sel.GlobalBatch / int(row), nil
}

// under returns the options with the rows of a microbatch of the selection.
func (o Options) under(sel *planner.Selection) Options {
	o.MicroBatch = cmp.Or(sel.MicroBatch, o.MicroBatch) * max(sel.Times, 1)
	return o
}

// Weighing returns the settings with which package cost weighs the plans of these options.
func (o Options) Weighing(sel *planner.Selection, topo millrace.Topology) cost.Weighing {
	o = o.under(sel)
	most := o.MicroBatch * sel.SequenceLength
	if o.Layout == millrace.Varlen {
		most = o.Shape(sel.SequenceLength, "").CapTokens
	}
	return cost.Weighing{Cost: o.Cost, Cap: most, Pad: sel.PadMultiple, Stages: topo.PP}
}
