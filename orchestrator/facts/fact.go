package facts

import "millrace/proto"

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

// SealedStep is a sealed step.
type SealedStep struct {
	Plan  *proto.Plan
	After *RunState // the run's state after the step; nil while the journal is replayed
}
