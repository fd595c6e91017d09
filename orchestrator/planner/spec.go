package planner

import (
	"fmt"

	"millrace"
	"millrace/mixing"
)

// Packing is how segments share bins.
type Packing string

// The packings. Concatenation across bins is refused by the configuration.
const (
	BestFit Packing = "best_fit" // best-fit-decreasing over the step
	Pad     Packing = "pad"      // one segment a bin
)

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
	StopSteps   uint64 // the run ends with this many steps; 0: no such end
	StopTokens  uint64 // the run ends with the first step that brings document tokens to this; 0: no such end
}

// Validate tells whether the spec can be planned.
func (s *Spec) Validate() error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("plan: "+format+": %w", append(args, millrace.ErrInvalid)...)
	}
	switch {
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

// maxBins keeps a step's bins addressable and its sums in range.
const maxBins = 1 << 22

// units returns the pad multiples that a segment occupies.
func (s *Spec) units(tokens uint32) uint32 {
	pad := max(s.PadMultiple, 1)
	return uint32((uint64(tokens) + uint64(pad) - 1) / uint64(pad))
}

func (s *Spec) names() []string {
	names := make([]string, len(s.Sources))
	for i := range s.Sources {
		names[i] = s.Sources[i].Name
	}
	return names
}
