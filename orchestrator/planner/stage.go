package planner

import (
	"millrace"
	"millrace/internal/bucket"
	"millrace/mixing"
	"millrace/orchestrator/planner/pack"
	"millrace/orchestrator/planner/progress"
)

// Stage is a part of a run whose steps have the same length and number of bins.
type Stage struct {
	From           mixing.Point    // the first step, or the document tokens placed before it
	SequenceLength uint32          // tokens in a bin
	GlobalBatch    int             // bins in a step; with a ramp, in those after it
	Rampup         millrace.Rampup // counted from the stage's first step
	Packing        millrace.Packing
	Filters        uint64 // the bits of SampleMeta.Refused that count in this stage, beside bit 0, which always does
	// rows of a microbatch, for placement only; 0: PlaceOptions decide. It has no effect on content
	MicroBatch uint32

	number int // stages before it in the Spec that it came from
}

// ownFilter is the bit of a source's own filter, which counts in every stage.
const ownFilter = 1

// stages returns all stages of the run. The spec's own fields are the first.
func (s *Spec) stages() []Stage { return append([]Stage{s.firstStage()}, s.Stages...) }

func (s *Spec) firstStage() Stage {
	return Stage{SequenceLength: s.SequenceLength, GlobalBatch: s.GlobalBatch, Rampup: s.Rampup, Packing: s.Packing}
}

// StageAt returns the stage of a step, with the batch size of that step, and the number of stages before it. tokens is
// the number of document tokens placed before the step.
func (s *Spec) StageAt(step millrace.Step, tokens uint64) (in Stage, number int) {
	in = s.stageAt(progress.Position{Step: uint64(step), Tokens: tokens})
	return in, in.number
}

// stageAt returns the stage of the step at a place in the schedule, with the batch size of that step. A stage from a
// token count begins with the first step at whose start that number of tokens has been placed.
func (s *Spec) stageAt(at progress.Position) Stage {
	in := s.firstStage()
	for i := range s.Stages {
		if s.Stages[i].From.IsReached(at.Step, at.Tokens) {
			in = s.Stages[i]
			in.number = i + 1
		}
	}
	if in.Rampup.Samples > 0 {
		in.GlobalBatch = int(in.Rampup.BatchSize(uint32(in.GlobalBatch), at.Step-in.From.Count))
	}
	return in
}

// isAlike reports whether steps of both stages may be drawn together. Steps of two stages never are, even if the stages
// have equal settings: MicroBatch may change at a restart, and must not decide about content.
func (in Stage) isAlike(o Stage) bool {
	return in.number == o.number && in.GlobalBatch == o.GlobalBatch
}

// carryOf returns the most segments that may wait in the stage.
func (s *Spec) carryOf(in *Stage, pooled bool) int {
	switch {
	case in.Packing != millrace.BestFit && in.Packing != millrace.Bucketed, s.hasTokenRows(in):
		return 0
	case s.Carry != AutoCarry:
		return s.Carry
	case pooled:
		return millrace.MostCarried
	default:
		return 0
	}
}

// hasTokenRows reports whether the stage's steps have rows of one length, and more rows if these are shorter.
func (s *Spec) hasTokenRows(in *Stage) bool {
	return in.Packing == millrace.Bucketed && s.BucketRows == bucket.Tokens
}

// The bounds of a window with token rows if the mixture file gives none. The rows of a step are about as long as their
// segments only if the step has many segments to choose from: a window of 64 steps fills rows to 95 %. Loaders keep the
// tokens of a window, so its room is bounded, but it has a few steps in any case.
const (
	roomOfWindow  = 1 << 26 // tokens
	leastOfWindow = 8
)

// windowOf returns the number of steps that are drawn and packed together in the stage, a power of two if the mixture
// file gives none.
func (s *Spec) windowOf(in *Stage) int {
	if s.Window > 0 || !s.hasTokenRows(in) {
		return max(s.Window, 1)
	}
	w := millrace.MostWindow
	for w > leastOfWindow && uint64(w)*uint64(in.GlobalBatch)*uint64(in.SequenceLength) > roomOfWindow {
		w /= 2
	}
	return w
}

// LongestWindow returns the number of steps of the longest window of all stages. It is a multiple of the others.
func (s *Spec) LongestWindow() (steps int) {
	all := s.stages()
	for i := range all {
		in := &all[i]
		steps = max(steps, s.windowOf(in))
		if in.Rampup.Samples > 0 {
			in.GlobalBatch = int(in.Rampup.Start)
			steps = max(steps, s.windowOf(in))
		}
	}
	return steps
}

// packWindow returns the bins of `steps` steps of the stage. pooled is that of the state before them.
func (s *Spec) packWindow(in *Stage, steps int, pooled bool) pack.Window {
	return pack.Window{
		Packing:  in.Packing,
		Rows:     s.BucketRows,
		Capacity: s.binUnits(in),
		Batch:    in.GlobalBatch,
		Steps:    steps,
		Carry:    s.carryOf(in, pooled),
		IsPooled: pooled,
	}
}

// binUnits returns the pad multiples in a bin.
func (s *Spec) binUnits(in *Stage) uint32 { return in.SequenceLength / max(s.PadMultiple, 1) }

// units returns the pad multiples that a segment occupies.
func (s *Spec) units(tokens uint32) uint32 {
	pad := max(s.PadMultiple, 1)
	units := tokens / pad
	if units*pad < tokens {
		units++
	}
	return units
}

// maxBins keeps a window's bins addressable and its sums in range.
const maxBins = 1 << 22

// validateStages returns an error unless every stage can be planned.
func (s *Spec) validateStages() error {
	all := s.stages()
	for i := range all {
		if err := s.validateStage(all, i); err != nil {
			return err
		}
	}
	return nil
}

func (s *Spec) validateStage(all []Stage, i int) error {
	pad, in := max(s.PadMultiple, 1), &all[i]
	mostBins := maxBins / s.windowOf(in)
	fail := func(format string, args ...any) error {
		return millrace.Errorf(millrace.ErrInvalid, "plan: stage %d: "+format, append([]any{i}, args...)...)
	}
	switch {
	case in.SequenceLength == 0 || in.SequenceLength%pad != 0:
		return fail("sequence_length %d is not a positive multiple of pad_multiple %d", in.SequenceLength, pad)
	case in.SequenceLength/pad > pack.MaxUnits:
		return fail("sequence_length %d exceeds %d times pad_multiple", in.SequenceLength, pack.MaxUnits)
	case in.GlobalBatch < 1 || in.GlobalBatch > mostBins:
		return fail("global_batch_size %d lies outside 1 … %d", in.GlobalBatch, mostBins)
	case !in.Packing.IsKnown():
		return fail("packing %q is none of best_fit, pad, concat, bucketed", in.Packing)
	case i > 0 && in.From.Count == 0 || i > 1 && !isLater(in.From, all[i-1].From):
		return fail("it does not begin after the one before it, in the same measure")
	}
	r := in.Rampup
	if r == (millrace.Rampup{}) {
		return nil
	}
	if !leads(r, in.GlobalBatch) {
		return fail(
			"the ramp of %d sequences by %d over %d does not lead to global_batch_size %d in fewer than %d increments",
			r.Start, r.Increment, r.Samples, in.GlobalBatch, millrace.MostRampSizes,
		)
	}
	if in.From.Measure == mixing.Tokens && r.Samples > 0 {
		return fail("a ramp counts from the stage's first step, and a token count does not fix that step: " +
			"let the stage begin at a step")
	}
	return nil
}

// isLater reports whether a stage may begin at a point after that of the stage before it.
func isLater(p, before mixing.Point) bool {
	return p.Measure == before.Measure && p.Count > before.Count
}

// leads reports whether a ramp reaches a batch size in whole increments, fewer than MostRampSizes.
func leads(r millrace.Rampup, batch int) bool {
	if r.Start == 0 || r.Increment == 0 || r.Samples == 0 || r.Samples > 1<<53 || int(r.Start) >= batch {
		return false
	}
	rise := batch - int(r.Start)
	return rise%int(r.Increment) == 0 && rise/int(r.Increment) < millrace.MostRampSizes
}
