package feed

import (
	"slices"

	"millrace"
	"millrace/internal/tokenid"
	"millrace/mixing"
	"millrace/sources"
	"millrace/sources/read/feed/decode"
	"millrace/sources/read/order"
)

// Sizes of spans.
const (
	maxSpan   = 64 << 10  // records
	partBytes = 256 << 10 // of a part of a making: its tokens, or about as much text
)

// phase is the state of the work on a span.
type phase uint8

const (
	fresh     phase = iota // only its positions are known
	gathering              // its ids are being looked up
	gathered               // its ids are known; its lengths too, if known is set
	making                 // its records are being read
)

// span is a run of consecutive stripe positions that are looked up, read and dropped together.
//
// Invariants: (1) the slots' Record, Shard and, once known, Length and refused never change; (2) decoders write Part
// and Off while phase is making, and others read them only while held; (3) a span with pins is not dropped. The feed's
// mutex guards all fields but the slots' contents. Decoders read the fields that do not change during a making.
type span struct {
	lo, hi uint64
	block  *block // nil in global order
	phase  phase
	known  bool // every length is known, so the span can be offered
	held   bool // the tokens are in memory
	keep   bool // the making in progress keeps tokens; otherwise it finds lengths only
	gone   bool // released; freed when the last user is done

	demand int   // fetches that wait for the tokens
	pins   int   // fetches that read them
	left   int   // unfinished parts of the making in progress
	tokens int64 // sum of the lengths, once known
	charge int64 // bytes charged to the budget

	slots   []decode.Slot
	refused []uint32 // by slot: bits of the filters that refuse it; nil without filters
	patches []uint32 // by slot; nil if the source has none
	parts   []decode.Tokens
	fields  map[uint32]string              // by slot: passed-through fields, while held
	rejects map[uint32]millrace.Quarantine // by slot: found before the span was known
	faults  map[uint32]millrace.Quarantine // by slot: bad although it was offered with a length
	runs    map[uint32]tokenid.Runs        // by slot: see decode.Outcome
}

// isRefused reports whether the source's own filter refuses a slot of a known span. The answer never changes.
func (p *span) isRefused(slot uint32) bool { return decode.IsRefused(p.refused, slot) }

// count sums up the tokens of a span whose lengths are known.
func (p *span) count(pieceTokens uint32) {
	p.tokens = 0
	for i := range p.slots {
		if !p.isRefused(uint32(i)) {
			p.tokens += int64(p.slots[i].Tokens(pieceTokens))
		}
	}
}

// cut shortens a span to its first n records, and returns the span of the others. No decoder works on it, and it holds
// nothing but slots.
func (p *span) cut(n uint64, pieceTokens uint32) *span {
	rest := &span{lo: p.lo + n, hi: p.hi, block: p.block, phase: p.phase, known: p.known, slots: p.slots[n:]}
	p.hi, p.slots = rest.lo, p.slots[:n:n]
	if p.refused != nil {
		rest.refused, p.refused = p.refused[n:], p.refused[:n:n]
	}
	if p.patches != nil {
		rest.patches, p.patches = p.patches[n:], p.patches[:n:n]
	}
	if p.known {
		p.count(pieceTokens)
		rest.count(pieceTokens)
	}
	return rest
}

// part describes one part of the making in progress for a decoder. While parts are left, known does not change, and
// only the rejects of an unknown span do.
func (p *span) part(number uint32) decode.Part {
	part := decode.Part{Number: number, Slots: p.slots, Refused: p.refused, Known: p.known, Keep: p.keep}
	if p.known {
		part.Rejects = p.rejects
	}
	return part
}

// block is a run of records that are permuted together, in block orders.
type block struct {
	seekPoint millrace.SeekPoint
	shard     uint32 // in the manifest, or millrace.RemovedShard
	size      order.BlockSize
	text      *decode.Text // nil if it is not held
	lo, hi    uint64       // stripe positions whose records the text has
	reading   bool         // its text is being read
	isInParts bool         // its whole text found no room: it is read in parts
	charge    int64        // bytes of text charged to the budget
	spans     []*span
}

// isRemoved reports whether the block is the rest of a file that was removed. Its records count zero.
func (b *block) isRemoved() bool { return b != nil && b.shard == millrace.RemovedShard }

// has reports whether the block's text is held and has the records of a span.
func (b *block) has(p *span) bool { return b.text != nil && b.lo <= p.lo && p.hi <= b.hi }

// isMaking reports whether a decoder makes a span from the block's text.
func (b *block) isMaking() bool {
	return slices.ContainsFunc(b.spans, func(p *span) bool { return p.phase == making })
}

// isIdle reports whether no span of the block needs the text that is held now. With lengths set, a span whose lengths
// are known does not need it either, unless a fetch waits.
func (b *block) isIdle(lengths bool) bool {
	for _, p := range b.spans {
		if p.phase == making {
			return false
		}
		if !b.has(p) {
			continue
		}
		if p.demand > 0 && !p.held {
			return false
		}
		if !p.gone && !p.held && !(lengths && p.known) {
			return false
		}
	}
	return true
}

// order returns the order of the block's records.
func (b *block) order(src *sources.Source) blockOrder {
	perm, permuted := src.Blocks().Permutation(b.seekPoint, b.size.Records)
	return blockOrder{block: b, perm: perm, permuted: permuted}
}

// blockOrder maps the ordinals of a block to its records.
type blockOrder struct {
	block    *block
	perm     mixing.Permutation
	permuted bool
}

// slot returns the slot of an ordinal of the block.
func (o *blockOrder) slot(n millrace.Ordinal) decode.Slot {
	at := uint64(n - o.block.seekPoint.Ordinal)
	if o.permuted {
		at = o.perm.At(at)
	}
	return decode.Slot{Shard: o.block.shard, Record: o.block.seekPoint.Record + at}
}
