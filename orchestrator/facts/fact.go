package facts

import "millrace/proto"

// Fact is a journal record together with the values that belong to it and are stored elsewhere.
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

// SealedStep is a step that was planned and journaled.
type SealedStep struct {
	Plan  *proto.Plan
	After *RunState // the run's state after the step; nil while the journal is replayed
}
