package feed

import (
	"millrace"
	"millrace/sources/filter"
	"millrace/sources/order"
)

// slot is one ordinal of a span: which record it is and where its tokens lie. No pointers: spans are many.
type slot struct {
	record uint64
	shard  uint32
	length uint32 // tokens; 0 until the span is known
	part   uint32 // of the span's tokens, valid while the span is held
	off    uint32 // in that part
}

// stage is what happens to a span.
type stage uint8

const (
	fresh     stage = iota // only its positions are known
	gathering              // its ids are being looked up
	gathered               // ids are known, and lengths too where known is set
	making                 // its records are being read
)

// span is a run of consecutive positions of a feed that are looked up, read and dropped together.
//
// Invariants: (1) slots' record, shard and, once known, length never change; (2) part and off are written by decoders
// while stage is making and read by others only while held; (3) a span with pins is not dropped. All fields but the
// slots' contents are guarded by the feed's mutex.
type span struct {
	lo, hi uint64
	block  *block // nil in global order
	stage  stage
	known  bool // every length is known, so it can be offered
	held   bool // the tokens are there
	keep   bool // of the making in progress: tokens are kept, else only lengths
	gone   bool // released; freed when nobody uses it any more

	counted bool // of the making in progress: it is one of the budget's turns

	demand int   // fetches waiting for the tokens
	pins   int   // fetches reading them
	left   int   // parts of the making in progress that are not finished
	tokens int64 // sum of the lengths, where known
	charge int64 // bytes charged to the budget

	slots   []slot
	refused []uint32                       // by slot: the bits of the filters that refuse it, settled like its length; nil where there are no filters
	patches []uint32                       // by slot; nil where the source has none
	parts   [][]uint32                     // tokens
	rejects map[uint32]millrace.Quarantine // by slot: found before it was offered
	faults  map[uint32]millrace.Quarantine // by slot: bad although it was offered with a length
}

// block is a run of records that is permuted together, in block orders.
type block struct {
	seekPoint millrace.SeekPoint
	shard     uint32 // in the manifest
	size      order.BlockSize
	text      *rawBlock // nil where it is not held
	scanning  bool
	charge    int64 // bytes of text charged to the budget
	spans     []*span
}

// idle tells that no span of the block needs the text now, or, with lengths alone asked for, to know its lengths.
func (b *block) idle(lengths bool) bool {
	for _, p := range b.spans {
		if p.stage == making || p.demand > 0 && !p.held {
			return false
		}
		if !p.gone && !p.held && !(lengths && p.known) {
			return false
		}
	}
	return true
}

// dropped tells whether a slot's tokens are not kept: the source's own filter refuses them. The answers of a known
// span never change.
func (p *span) dropped(i uint32) bool { return p.refused != nil && p.refused[i]&filter.Own != 0 }
