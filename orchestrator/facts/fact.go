package facts

import (
	"millrace"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/progress"
	"millrace/proto"
)

// Fact is a journal record and the values that belong to it but are kept elsewhere.
type Fact struct {
	*proto.Record
	Plan *proto.Plan // of Sealed: the ledger keeps it
	At   *RunState   // of Opened and Sealed: the run's state after the fact, decoded
}

// Stripe names a stripe of a source.
type Stripe struct {
	Source string
	Index  uint32
}

// Step is a sealed step.
type Step struct {
	Plan  *proto.Plan
	After *RunState // the run's state after the step; nil while the journal is replayed
}

// Run is everything that all states of one run have in common.
type Run struct {
	Spec     *planner.Spec // of the mixture file; nil: overrides are not decoded
	Identity []byte        // JSON, compact
	sources  []SourceFiles
	packed   string // sources, as a state holds them
}

// NewRun returns the common part of a run's states. Sources are in the planner's order.
func NewRun(spec *planner.Spec, identity []byte, sources []SourceFiles) *Run {
	return &Run{Spec: spec, Identity: identity, sources: sources, packed: packSources(sources)}
}

// RunState is a decoded run state: all that a fresh run directory needs to go on. It is a value; nothing changes it.
type RunState struct {
	*Run
	Attempt   uint32 // the attempt that it was made in; 0 before the first
	Planner   progress.State
	Overrides Overrides // of steps from Planner.Step on, as far as they were known when the state was made
}

// NewRunState returns the state of a run at a state of the planner. Overrides are trimmed to the steps that follow it.
func NewRunState(run *Run, attempt uint32, st progress.State, o Overrides) *RunState {
	return &RunState{Run: run, Attempt: attempt, Planner: st, Overrides: o.Since(&st)}
}

// Step returns the first step that was not consumed.
func (s *RunState) Step() uint64 { return uint64(s.Planner.Step) }

// With returns the state with other overrides, trimmed to the steps that follow it.
func (s *RunState) With(o Overrides) *RunState { return NewRunState(s.Run, s.Attempt, s.Planner, o) }

// IsAlike reports whether both are the same state but for their overrides, which may have been known later.
func (s *RunState) IsAlike(o *RunState) bool {
	return s.Attempt == o.Attempt && s.packed == o.packed && string(s.Identity) == string(o.Identity) && s.Planner.Equal(o.Planner)
}

// Encode returns the text that a trainer saves. Equal states have equal texts.
func (s *RunState) Encode() []byte {
	return savedText{Version: savedVersion, Step: s.Step(), Attempt: s.Attempt, Planner: s.Planner.Compact(), Sources: s.packed, Identity: s.Identity,
		Overrides: s.Overrides.text(s.Spec)}.encode()
}

// term is a short form for marks of wrong usage.
func invalid(format string, args ...any) error {
	return millrace.Errorf(millrace.ErrInvalid, format, args...)
}
