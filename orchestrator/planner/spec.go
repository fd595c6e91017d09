package planner

import (
	"slices"

	"millrace"
	"millrace/internal/bucket"
	"millrace/mixing"
	"millrace/orchestrator/planner/progress"
)

// SourceSpec is the part of a source's settings that select needs.
type SourceSpec struct {
	Name        string
	OnExhausted millrace.OnExhausted
	Filters     string // the filters that may refuse its documents, for people; empty: none
	// PieceTokens is the length of a piece if the source's ordinals are pieces of documents. 0: an ordinal is a whole
	// document.
	PieceTokens uint32
	// PiecesByDefault: the mixture file does not say so. Runs of earlier planners have whole documents then.
	PiecesByDefault bool
	Untrained       bool // some tokens of its documents may be left out of the loss
}

// hasUntrained reports whether some tokens of the run may be left out of the loss.
func (s *Spec) hasUntrained() bool {
	return slices.ContainsFunc(s.Sources, func(x SourceSpec) bool { return x.Untrained })
}

// Under returns the spec as it holds for a run that is in this state.
func (s *Spec) Under(st *progress.State) *Spec {
	pieces := slices.ContainsFunc(s.Sources, func(x SourceSpec) bool { return x.PiecesByDefault })
	if st.ShufflesPieces() || !pieces && !s.RowsByDefault {
		return s
	}
	out := *s
	if s.RowsByDefault {
		out.BucketRows, out.RowsByDefault = bucket.Constant, false
	}
	out.Sources = slices.Clone(s.Sources)
	for i := range out.Sources {
		if src := &out.Sources[i]; src.PiecesByDefault {
			src.PieceTokens, src.PiecesByDefault = 0, false
		}
	}
	return &out
}

// begins reports whether a segment at an offset of its document is the first of its ordinal.
func (s *SourceSpec) begins(offset uint32) bool {
	return offset == 0 || s.PieceTokens > 0 && offset%s.PieceTokens == 0
}

// ends reports whether a segment is the last of its ordinal.
func (s *SourceSpec) ends(seg *millrace.Segment) bool {
	return !seg.More || s.PieceTokens > 0 && (seg.Offset+seg.Length)%s.PieceTokens == 0
}

// endOf returns the document's tokens up to the end of the ordinal.
func (s *SourceSpec) endOf(meta *millrace.SampleMeta) uint32 {
	end := meta.Lengths.Tokens
	if s.PieceTokens > 0 {
		end = uint32(min(uint64(end), uint64(meta.Offset)+uint64(s.PieceTokens)))
	}
	return end
}

// Spec is the part of the configuration that decides the content of a step. It does not depend on the topology. It must
// not change while a Selector uses it.
type Spec struct {
	// The first stage, from step 0.
	SequenceLength uint32          // tokens in a bin
	GlobalBatch    int             // bins in a step
	Rampup         millrace.Rampup // on the way to GlobalBatch
	Packing        millrace.Packing

	Stages      []Stage // later stages, in rising order
	PadMultiple uint32  // every segment is rounded up to a multiple of it; divides every sequence length; 0 means 1
	Unit        millrace.Unit
	Sources     []SourceSpec // sorted by name; everything else addresses a source by its index here
	Schedule    *mixing.Schedule
	Skips       []Skip // at distinct steps
	LastStep    millrace.LastStep
	// most segments that wait for a later step with BestFit or Bucketed packing; 0: none; or AutoCarry
	Carry int
	// steps that are drawn and packed together; 0: one; with Bucketed and TokenRows, the number that fills the rows
	Window     int
	BucketRows bucket.Rule // with Bucketed; empty means ConstantRows
	// RowsByDefault: the mixture file does not say so. Runs of earlier planners have constant rows then.
	RowsByDefault bool
	StopSteps     uint64 // the run ends with this many steps; 0: no such end
	StopTokens    uint64 // the run ends with the first step that brings document tokens to this; 0: no such end
}

// AutoCarry lets the number of segments wait that fills the bins best, at most millrace.MostCarried. In a run of an
// earlier planner, which lacks this rule, none waits.
const AutoCarry = -1

// MaxSkip bounds the steps of one Skip. Metadata of all its documents is held until it is over.
const MaxSkip = 4096

// Skip leaves out the documents of steps From to To, To excluded. Step From then holds the documents that step To would
// have held, but under the mixture of step From. Deficits do not change.
type Skip struct{ From, To millrace.Step }

// validate returns an error unless the skip can be planned.
func (k Skip) validate() error {
	switch {
	case k.To <= k.From:
		return millrace.Errorf(millrace.ErrInvalid,
			"skip steps %s to %s: the second is excluded and has to be larger than the first", k.From, k.To)
	case k.To-k.From > MaxSkip:
		return millrace.Errorf(millrace.ErrInvalid,
			"skip steps %s to %s: one skip passes over at most %d steps: give several", k.From, k.To, MaxSkip)
	}
	return nil
}

// Validate returns an error unless the spec can be planned.
func (s *Spec) Validate() error {
	fail := func(format string, args ...any) error {
		return millrace.Errorf(millrace.ErrInvalid, "plan: "+format, args...)
	}
	switch {
	case s.Carry != AutoCarry && (s.Carry < 0 || s.Carry > millrace.MostCarried):
		return fail("carry %d lies outside 0 … %d", s.Carry, millrace.MostCarried)
	case s.Window < 0 || s.Window > millrace.MostWindow:
		return fail("window %d lies outside 1 … %d", s.Window, millrace.MostWindow)
	case s.BucketRows != "" && s.BucketRows != bucket.Tokens && s.BucketRows != bucket.Constant:
		return fail("bucket_rows %q is neither tokens nor constant", s.BucketRows)
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
			return fail("source %q: on_exhausted %q is none of repeat, renormalize, stop, error", src.Name,
				src.OnExhausted)
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

// windowAt returns the number of steps of the window that begins at a place in the schedule. Windows end at absolute
// multiples; cutsAt may end one earlier.
func (s *Spec) windowAt(at progress.Position) int {
	in := s.stageAt(at)
	w := uint64(s.windowOf(&in))
	return int(w - at.Step%w)
}

// windowFrom returns the number of steps of the window that begins at a state. A step that follows a skip is a window
// of its own if the skip changes the segments that wait: a Delta has these changes at the end of a window only.
func (s *Spec) windowFrom(st *progress.State) int {
	if st.IsPooled() && slices.ContainsFunc(s.Skips, func(k Skip) bool { return k.From == st.Step }) {
		return 1
	}
	return s.windowAt(st.Position())
}

// FreeFrom returns the first place in the schedule at which a change may begin in a run that has planned up to a state:
// the state's own step and tokens, or, inside a window, the window's last step and the most tokens that it may reach. A
// window under way is drawn again with the settings at its beginning.
func (s *Spec) FreeFrom(st *progress.State) (step millrace.Step, tokens uint64) {
	if st.Done == (progress.Done{}) {
		return st.Step, st.Tokens
	}
	begin := st.Begun()
	in, steps := s.stageAt(begin.Position()), s.windowAt(begin.Position())
	most := uint64(steps) * uint64(in.GlobalBatch) * uint64(in.SequenceLength)
	return begin.Step + millrace.Step(steps), begin.Tokens + most
}

// cutsAt reports whether a window ends between a step and the next, which begin at these places. Steps that are drawn
// together are of one stage, and their mixture is constant or moves along one ramp.
func (s *Spec) cutsAt(step, next progress.Position) bool {
	return s.Schedule.HasBreak(step.Step, step.Tokens, next.Step, next.Tokens) ||
		!s.stageAt(step).isAlike(s.stageAt(next)) ||
		slices.ContainsFunc(s.Skips, func(k Skip) bool { return uint64(k.From) == next.Step })
}

func (s *Spec) names() []string {
	names := make([]string, len(s.Sources))
	for i := range s.Sources {
		names[i] = s.Sources[i].Name
	}
	return names
}

// stoppedBy returns the source with on_exhausted: stop that has ended, if one has.
func (s *Spec) stoppedBy(st *progress.State) (source int, ok bool) {
	for i := range st.Sources {
		if st.Sources[i].Finished && s.Sources[i].OnExhausted == millrace.StopRun {
			return i, true
		}
	}
	return 0, false
}
