package facts

import (
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/progress"
)

// Run is the part that all states of one run have in common.
type Run struct {
	Spec     *planner.Spec // of the mixture file; nil: overrides stay encoded
	Identity []byte        // JSON, compact
	sources  []SourceFiles
	packed   string // sources, as in an encoded state
	eras     string // likewise, their eras
	// Said has the lines for people about the documents that a change of files reads twice or never. No state has them.
	Said []string
}

// NewRun returns the common part of a run's states. Sources are in the planner's order.
func NewRun(spec *planner.Spec, identity []byte, sources []SourceFiles) *Run {
	return &Run{Spec: spec, Identity: identity, sources: sources, packed: packSources(sources), eras: packEras(sources)}
}

// ErasOf returns the bytes of a source's eras, none if all epochs read all files.
func (r *Run) ErasOf(source int) []byte { return r.sources[source].Eras.Encode() }

// HasEras reports whether epochs of some source read other files than all of those that are there.
func (r *Run) HasEras() bool { return r.eras != "" }

// RunState is a decoded run state. A fresh run directory needs nothing else to continue the run. It is immutable.
type RunState struct {
	*Run
	Attempt   uint32 // the attempt in which it was made; 0: before the first
	Planner   progress.State
	Overrides Overrides // for steps from Planner.Step on, those known when the state was made
}

// NewRunState returns the state of a run at a state of the planner. Overrides are trimmed to the steps that follow it.
func NewRunState(run *Run, attempt uint32, st progress.State, o Overrides) *RunState {
	return &RunState{Run: run, Attempt: attempt, Planner: st, Overrides: o.Since(&st)}
}

// NextStep returns the first step that was not consumed.
func (s *RunState) NextStep() uint64 { return uint64(s.Planner.Step) }

// WithOverrides returns the state with other overrides, trimmed to the steps that follow it.
func (s *RunState) WithOverrides(o Overrides) *RunState {
	return NewRunState(s.Run, s.Attempt, s.Planner, o)
}

// IsAlike reports whether both states are equal except for their overrides, which may have been known later.
func (s *RunState) IsAlike(o *RunState) bool {
	return s.Attempt == o.Attempt && s.packed == o.packed && s.eras == o.eras &&
		string(s.Identity) == string(o.Identity) && s.Planner.Equal(o.Planner)
}
