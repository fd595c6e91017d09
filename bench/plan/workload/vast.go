package workload

import (
	"millrace"
	"millrace/orchestrator/planner"
)

// Vast offers any number of sources with any number of documents. It computes each length from the document's
// address and stores none.
type Vast struct {
	Lengths []uint32
	Each    uint64 // documents in an epoch of a source
}

// Peek implements planner.Offers. Every document is ready.
func (v Vast) Peek(source int, o millrace.Ordinal) (millrace.SampleMeta, planner.Availability) {
	at := (uint64(o)*0x9e3779b97f4a7c15 + uint64(source)) >> 20
	return millrace.SampleMeta{
		Ordinal: o, Epoch: millrace.Epoch(uint64(o) / v.Each),
		ID:      millrace.SampleID{Record: uint64(o) % v.Each},
		Lengths: millrace.Lengths{Tokens: v.Lengths[at%uint64(len(v.Lengths))]},
	}, planner.Ready
}
