package feed

import (
	"math"

	"millrace"
	"millrace/sources/read/order"
)

// Position is the place at which a feed begins. In block orders, SeekPoint is the newest known one that is not after
// Ordinal; the zero SeekPoint is the start of the stream. Global order does not need it.
type Position struct {
	Ordinal   millrace.Ordinal
	SeekPoint millrace.SeekPoint
}

// cursor holds the stripe positions up to which a feed has got. The feed's mutex guards it.
//
// Invariants: (1) head ≤ offered; (2) the queue covers head … frontier without a gap, or is empty.
type cursor struct {
	stripe   order.Stripe
	head     uint64           // positions below are released
	offered  uint64           // positions below were offered
	want     uint64           // positions below may be offered
	demanded uint64           // positions below are wanted by a fetch
	frontier uint64           // position after the last span
	end      millrace.Ordinal // of the source's stream; noEnd while unknown
}

// noEnd is the end of an endless stream, or of a stream whose end is not known yet.
const noEnd = millrace.Ordinal(math.MaxUint64)

// moveTo sets the cursor to an ordinal. The feed has not run yet.
func (c *cursor) moveTo(from millrace.Ordinal) {
	c.head = c.stripe.Position(from)
	c.want, c.offered, c.frontier = c.head, c.head, c.head
}

// release moves the head to an ordinal.
func (c *cursor) release(below millrace.Ordinal) {
	c.head = max(c.head, c.stripe.Position(below))
	c.offered = max(c.offered, c.head)
}

// require notes that a fetch wants a position.
func (c *cursor) require(position uint64) { c.demanded = max(c.demanded, position+1) }

// required returns the position up to which lengths are needed.
func (c *cursor) required() uint64 { return max(c.want, c.demanded) }

// ahead returns the position up to which tokens are made if the budget allows. Its distance from the wanted positions
// is their distance from the head, and at least `least`.
func (c *cursor) ahead(least uint64) uint64 {
	want := max(c.want, c.demanded, c.head)
	more := max(want-c.head, least, millrace.StripeRun)
	if want > math.MaxUint64-more {
		return math.MaxUint64
	}
	return want + more
}

// isEnded reports whether every offer of the stream was made.
func (c *cursor) isEnded() bool { return c.end != noEnd && c.offered >= c.stripe.Position(c.end) }

// check returns the error of an ordinal that cannot be fetched.
func (c *cursor) check(source string, n millrace.Ordinal, position uint64) error {
	if position < c.head {
		return millrace.Errorf(millrace.ErrInvalid, "fetch %s ordinal %d: it was released (all below %d)",
			source, n, c.stripe.Ordinal(c.head))
	}
	if n >= c.end {
		return millrace.Errorf(millrace.ErrInvalid, "fetch %s ordinal %d: the stream ends at %d", source, n, c.end)
	}
	return nil
}

// sizes estimates the size of records from those seen so far.
type sizes struct {
	guess   int64 // bytes of a record's tokens, before any was seen
	records int64
	tokens  int64
}

// recordBytes returns the average bytes of a record's tokens.
func (s *sizes) recordBytes() int64 {
	if s.records < 64 {
		return s.guess
	}
	return max(4*s.tokens/s.records, 4)
}

// learn counts a span whose lengths became known.
func (s *sizes) learn(p *span) {
	s.records += int64(len(p.slots))
	s.tokens += p.tokens
}

// spanBytes estimates the bytes of a span's tokens.
func (s *sizes) spanBytes(p *span) int64 {
	if p.known {
		return 4 * p.tokens
	}
	n := int64(p.hi - p.lo)
	if p.block != nil {
		return n * int64(p.block.size.Raw/p.block.size.Records)
	}
	return n * s.recordBytes()
}
