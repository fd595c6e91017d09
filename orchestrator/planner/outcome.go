package planner

import "millrace"

// Reason is the reason why a run ended.
type Reason string

// The reasons.
const (
	SourcesThrough Reason = "sources" // no unfinished source can still receive weight
	SourceStopped  Reason = "stop"    // a source whose on_exhausted is stop ended
	StepsReached   Reason = "steps"
	TokensReached  Reason = "tokens"
)

// OutcomeKind is the kind of answer that Advance gives.
type OutcomeKind uint8

// The answers of Advance.
const (
	Sealed   OutcomeKind = iota // a selection
	Waiting                     // metadata is missing: call again when it is there
	Finished                    // no step follows
)

// Outcome is the answer of Advance beside the selection.
type Outcome struct {
	Kind    OutcomeKind
	Source  int              // Waiting: the source whose metadata is missing; SourceStopped: the source that ended
	Ordinal millrace.Ordinal // Waiting: the ordinal needed
	Reason  Reason           // Finished, or Sealed with Last: why the run ends
	Unread  []string         // with SourcesThrough and SourceStopped: sources that still had documents
}
