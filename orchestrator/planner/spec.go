package planner

import (
	"slices"

	"millrace"
	"millrace/mixing"
	"millrace/orchestrator/planner/pack"
)

// SourceSpec is what select knows of a source beside its offers.
type SourceSpec struct {
	Name        string
	OnExhausted millrace.OnExhausted
	Filters     string // the filters that may refuse its documents, for people; empty: none
}

// Spec is all of the configuration that decides what a step holds. Nothing of the topology is in it. It is read-only once a
// Selector has it.
type Spec struct {
	// The first stage, from step 0.
	SequenceLength uint32          // tokens in a bin
	GlobalBatch    int             // bins in a step
	Rampup         millrace.Rampup // on the way to GlobalBatch
	Packing        millrace.Packing

	Stages      []Stage // those that follow, in rising order
	PadMultiple uint32  // every segment is rounded up to a multiple of it; divides every sequence length; 0 means 1
	Unit        millrace.Unit
	Sources     []SourceSpec // sorted by name; everything else addresses a source by its index here
	Schedule    *mixing.Schedule
	Skips       []Skip // each at another step
	LastStep    millrace.LastStep
	Carry       int    // most segments that wait for a later step where the packing is BestFit or Bucketed; 0: none does
	Window      int    // steps that are drawn and packed together; 0 means 1
	StopSteps   uint64 // the run ends with this many steps; 0: no such end
	StopTokens  uint64 // the run ends with the first step that brings document tokens to this; 0: no such end
}

// Validate tells whether the spec can be planned.
func (s *Spec) Validate() error {
	fail := func(format string, args ...any) error {
		return millrace.Errorf(millrace.ErrInvalid, "plan: "+format, args...)
	}
	switch {
	case s.Carry < 0 || s.Carry > millrace.MostCarried:
		return fail("carry %d lies outside 0 … %d", s.Carry, millrace.MostCarried)
	case s.Window < 0 || s.Window > millrace.MostWindow:
		return fail("window %d lies outside 1 … %d", s.Window, millrace.MostWindow)
	case s.Unit != millrace.UnitTokens && s.Unit != millrace.UnitSamples:
		return fail("unit %q is neither tokens nor samples", s.Unit)
	case s.LastStep != millrace.PadLast && s.LastStep != millrace.ShortLast && s.LastStep != millrace.DropLast:
		return fail("last_step %q is none of pad, short, drop", s.LastStep)
	case len(s.Sources) == 0 || s.Schedule == nil:
		return fail("a mixture needs sources and a schedule")
	case len(s.Schedule.At(0, 0)) != len(s.Sources):
		return fail("the schedule has weights for %d sources, there are %d", len(s.Schedule.At(0, 0)), len(s.Sources))
	case !ascending(s.names()):
		return fail("the sources are not sorted by distinct names")
	}
	for _, src := range s.Sources {
		switch src.OnExhausted {
		case millrace.Repeat, millrace.Renormalize, millrace.StopRun, millrace.FailRun:
		default:
			return fail("source %q: on_exhausted %q is none of repeat, renormalize, stop, error", src.Name, src.OnExhausted)
		}
	}
	for _, k := range s.Skips {
		if err := k.validate(); err != nil {
			return err
		}
	}
	return s.validateStages()
}

func ascending(names []string) bool {
	for i := 1; i < len(names); i++ {
		if names[i-1] >= names[i] {
			return false
		}
	}
	return true
}

// maxBins keeps a window's bins addressable and its sums in range.
const maxBins = 1 << 22

// windowAt returns how many steps the window has that begins before a step, unless it is cut: windows end at absolute multiples.
func (s *Spec) windowAt(step millrace.Step) int {
	w := uint64(max(s.Window, 1))
	return int(w - uint64(step)%w)
}

// FreeFrom is the first place in the schedule at which a change may begin in a run that has planned up to a state: its step and tokens, or what no
// step of the window under way comes to, since that is drawn again as it was.
func (s *Spec) FreeFrom(st *State) (step millrace.Step, tokens uint64) {
	if st.Done == (Done{}) {
		return st.Step, st.Tokens
	}
	begin := st.begun()
	in, steps := s.stageAt(begin.point()), s.windowAt(begin.Step)
	return begin.Step + millrace.Step(steps), begin.Tokens + uint64(steps)*uint64(in.GlobalBatch)*uint64(in.SequenceLength)
}

// cutsAt tells whether a window ends between a step and the next, which begin at these places: what is drawn together knows one kind of step, and
// a mixture that stands or moves evenly.
func (s *Spec) cutsAt(step, next point) bool {
	return s.Schedule.Breaks(step.step, step.tokens, next.step, next.tokens) || !s.stageAt(step).alike(s.stageAt(next)) ||
		slices.ContainsFunc(s.Skips, func(k Skip) bool { return uint64(k.From) == next.step })
}

// units returns the pad multiples that a segment occupies.
func (s *Spec) units(tokens uint32) uint32 {
	pad := max(s.PadMultiple, 1)
	units := tokens / pad
	if units*pad < tokens {
		units++
	}
	return units
}

func (s *Spec) names() []string {
	names := make([]string, len(s.Sources))
	for i := range s.Sources {
		names[i] = s.Sources[i].Name
	}
	return names
}

// Stage is a part of a run whose steps are alike: so many bins of such a length.
type Stage struct {
	From           mixing.Point    // the first step, or the document tokens placed before it
	SequenceLength uint32          // tokens in a bin
	GlobalBatch    int             // bins in a step; with a ramp, in those after it
	Rampup         millrace.Rampup // counted from the stage's first step
	Packing        millrace.Packing
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

// carry returns the most segments that may wait in the stage.
func (s *Spec) carry(in *Stage) int {
	switch in.Packing {
	case millrace.BestFit, millrace.Bucketed:
		return s.Carry
	default:
		return 0
	}
}

// window returns the bins of so many steps of the stage.
func (s *Spec) window(in *Stage, steps int) pack.Window {
	return pack.Window{Packing: in.Packing, Capacity: s.binUnits(in), Batch: in.GlobalBatch, Steps: steps, Carry: s.carry(in)}
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
		case at.SequenceLength/pad > pack.MaxUnits:
			return fail("sequence_length %d exceeds %d times pad_multiple", at.SequenceLength, pack.MaxUnits)
		case at.GlobalBatch < 1 || at.GlobalBatch > maxBins/max(s.Window, 1):
			return fail("global_batch_size %d lies outside 1 … %d", at.GlobalBatch, maxBins/max(s.Window, 1))
		case !at.Packing.Known():
			return fail("packing %q is none of best_fit, pad, concat, bucketed", at.Packing)
		case i > 0 && (at.From.Count == 0 || i > 1 && (at.From.Measure != all[i-1].From.Measure || at.From.Count <= all[i-1].From.Count)):
			return fail("it does not begin after the one before it, in the same measure")
		}
		if r := at.Rampup; r != (millrace.Rampup{}) && (r.Start == 0 || r.Increment == 0 || r.Samples == 0 || r.Samples > 1<<53 ||
			int(r.Start) >= at.GlobalBatch || (at.GlobalBatch-int(r.Start))%int(r.Increment) != 0 || (at.GlobalBatch-int(r.Start))/int(r.Increment) >= millrace.MostRampSizes) {
			return fail("the ramp of %d sequences by %d over %d does not lead to global_batch_size %d in fewer than 4096 increments", r.Start, r.Increment, r.Samples, at.GlobalBatch)
		}
		if at.From.Measure == mixing.Tokens && at.Rampup.Samples > 0 {
			return fail("a ramp counts from the stage's first step, and tokens do not tell which that is: let the stage begin at a step")
		}
	}
	return nil
}
