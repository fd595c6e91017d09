package planner

import (
	"millrace"
	"millrace/mixing"
)

// Stage is a part of a run whose steps are alike: so many bins of such a length.
type Stage struct {
	From           mixing.Point    // the first step, or the document tokens placed before it
	SequenceLength uint32          // tokens in a bin
	GlobalBatch    int             // bins in a step; with a ramp, in those after it
	Rampup         millrace.Rampup // counted from the stage's first step
	Packing        Packing
	Filters        uint64 // the bits of SampleMeta.Refused that count in this stage, beside bit 0, which always does
	MicroBatch     uint32 // rows of a microbatch, for whoever places; 0: what PlaceOptions say. It decides nothing about content

	number int // of stages before it, where a Spec gave it
}

// ownFilter is the bit of a source's own filter, which counts in every stage.
const ownFilter = 1

// stages returns all stages of the run; the first is what the spec itself says.
func (s *Spec) stages() []Stage {
	first := Stage{SequenceLength: s.SequenceLength, GlobalBatch: s.GlobalBatch, Rampup: s.Rampup, Packing: s.Packing}
	return append([]Stage{first}, s.Stages...)
}

// StageAt returns the stage of the step before which that many document tokens have been placed, with the batch size of that step, and how many stages
// come before it.
func (s *Spec) StageAt(step millrace.Step, tokens uint64) (in Stage, number int) {
	in = s.stageAt(point{uint64(step), tokens})
	return in, in.number
}

// stageAt returns the stage of the step at a place in the schedule, with the batch size of that step. A stage by tokens
// begins with the first step before which they have been placed.
func (s *Spec) stageAt(at point) Stage {
	in := Stage{SequenceLength: s.SequenceLength, GlobalBatch: s.GlobalBatch, Rampup: s.Rampup, Packing: s.Packing}
	for i := range s.Stages {
		if s.Stages[i].From.Reached(at.step, at.tokens) {
			in = s.Stages[i]
			in.number = i + 1
		}
	}
	if in.Rampup.Samples > 0 {
		in.GlobalBatch = int(in.Rampup.BatchSize(uint32(in.GlobalBatch), at.step-in.From.Count))
	}
	return in
}

// alike tells whether steps of both may be drawn together. Stages never are, whatever they have in common: what a stage says of microbatches may
// change when a run goes on, and must not decide about content.
func (in Stage) alike(o Stage) bool { return in.number == o.number && in.GlobalBatch == o.GlobalBatch }

// maxSizes bounds the batch sizes of one ramp.
const maxSizes = 4096

// carry returns the most segments that may wait in the stage.
func (s *Spec) carry(in *Stage) int {
	switch in.Packing {
	case BestFit, Bucketed:
		return s.Carry
	default:
		return 0
	}
}

// mayWait tells whether so many segments, of so many units, may be left to the next window of the stage: no more than find room there in any
// case, one a bin or in half of what the bins hold.
func (s *Spec) mayWait(in *Stage, segments int, units uint64) bool {
	return segments <= s.carry(in) && (segments <= in.GlobalBatch || units <= uint64(in.GlobalBatch)*uint64(s.binUnits(in))/2)
}

// binUnits returns the pad multiples in a bin.
func (s *Spec) binUnits(in *Stage) uint32 { return in.SequenceLength / max(s.PadMultiple, 1) }

// validateStages tells whether the stages can be planned.
func (s *Spec) validateStages() error {
	pad := max(s.PadMultiple, 1)
	all := s.stages()
	for i := range all {
		at := &all[i]
		fail := func(format string, args ...any) error {
			return millrace.Errorf(millrace.ErrInvalid, "plan: stage %d: "+format, append([]any{i}, args...)...)
		}
		switch {
		case at.SequenceLength == 0 || at.SequenceLength%pad != 0:
			return fail("sequence_length %d is not a positive multiple of pad_multiple %d", at.SequenceLength, pad)
		case at.SequenceLength/pad > maxUnits:
			return fail("sequence_length %d exceeds %d times pad_multiple", at.SequenceLength, maxUnits)
		case at.GlobalBatch < 1 || at.GlobalBatch > maxBins/max(s.Window, 1):
			return fail("global_batch_size %d lies outside 1 … %d", at.GlobalBatch, maxBins/max(s.Window, 1))
		case !at.Packing.known():
			return fail("packing %q is none of best_fit, pad, concat, bucketed", at.Packing)
		case i > 0 && (at.From.Count == 0 || i > 1 && (at.From.Measure != all[i-1].From.Measure || at.From.Count <= all[i-1].From.Count)):
			return fail("it does not begin after the one before it, in the same measure")
		}
		if r := at.Rampup; r != (millrace.Rampup{}) && (r.Start == 0 || r.Increment == 0 || r.Samples == 0 || r.Samples > 1<<53 ||
			int(r.Start) >= at.GlobalBatch || (at.GlobalBatch-int(r.Start))%int(r.Increment) != 0 || (at.GlobalBatch-int(r.Start))/int(r.Increment) >= maxSizes) {
			return fail("the ramp of %d sequences by %d over %d does not lead to global_batch_size %d in fewer than 4096 increments", r.Start, r.Increment, r.Samples, at.GlobalBatch)
		}
		if at.From.Measure == mixing.Tokens && at.Rampup.Samples > 0 {
			return fail("a ramp counts from the stage's first step, and tokens do not tell which that is: let the stage begin at a step")
		}
	}
	return nil
}
