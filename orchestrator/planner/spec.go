package planner

import (
	"slices"

	"millrace"
	"millrace/mixing"
)

// Packing is how segments share bins.
type Packing string

// The packings. Where documents are concatenated, one that has begun goes on at once, whatever the mixture says by then.
const (
	BestFit  Packing = "best_fit" // best-fit-decreasing over the window
	Pad      Packing = "pad"      // one segment a bin
	Concat   Packing = "concat"   // one after the other, cut where a bin ends
	Bucketed Packing = "bucketed" // one segment a bin, all of a step in bins of one length, which is that of the step
)

// known tells whether there is such a packing.
func (p Packing) known() bool { return p == BestFit || p == Pad || p == Concat || p == Bucketed }

// Unit is what the mixture's weights count.
type Unit string

// The units.
const (
	Tokens  Unit = "tokens"  // every segment counts its document tokens
	Samples Unit = "samples" // a document counts 1 at its first segment; its rest follows at once, free
)

// OnExhausted is what happens when a source has no further document.
type OnExhausted string

// What happens. A Repeat source never ends; if its offers say that it does, it is empty.
const (
	Repeat      OnExhausted = "repeat"
	Renormalize OnExhausted = "renormalize" // it leaves, the others divide its share
	Stop        OnExhausted = "stop"        // the run ends with this step
	Fail        OnExhausted = "error"       // the run fails
)

// LastStep is what becomes of a finite run's last step where its segments do not fill all bins.
type LastStep string

// What becomes of it.
const (
	PadLast   LastStep = "pad"   // empty bins are padding
	ShortLast LastStep = "short" // as pad, without the microbatches that are padding on every rank
	DropLast  LastStep = "drop"  // it is not delivered
)

// SourceSpec is what select knows of a source beside its offers.
type SourceSpec struct {
	Name        string
	OnExhausted OnExhausted
	Filters     string // the filters that may refuse its documents, for people; empty: none
}

// Spec is all of the configuration that decides what a step holds. Nothing of the topology is in it. It is read-only once a
// Selector has it.
type Spec struct {
	// The first stage, from step 0.
	SequenceLength uint32          // tokens in a bin
	GlobalBatch    int             // bins in a step
	Rampup         millrace.Rampup // on the way to GlobalBatch
	Packing        Packing

	Stages      []Stage // those that follow, in rising order
	PadMultiple uint32  // every segment is rounded up to a multiple of it; divides every sequence length; 0 means 1
	Unit        Unit
	Sources     []SourceSpec // sorted by name; everything else addresses a source by its index here
	Schedule    *mixing.Schedule
	Skips       []Skip // each at another step
	LastStep    LastStep
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
	case s.Carry < 0 || s.Carry > MostCarried:
		return fail("carry %d lies outside 0 … %d", s.Carry, MostCarried)
	case s.Window < 0 || s.Window > MostWindow:
		return fail("window %d lies outside 1 … %d", s.Window, MostWindow)
	case s.Unit != Tokens && s.Unit != Samples:
		return fail("unit %q is neither tokens nor samples", s.Unit)
	case s.LastStep != PadLast && s.LastStep != ShortLast && s.LastStep != DropLast:
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
		case Repeat, Renormalize, Stop, Fail:
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

// maxBins keeps a window's bins addressable and its sums in range; MostWindow is the most steps of a window, which a restart draws again.
const (
	maxBins    = 1 << 22
	MostWindow = 64
)

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
