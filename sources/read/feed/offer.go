package feed

import (
	"errors"
	"fmt"
	"slices"

	"millrace"
	"millrace/internal/tokenid"
)

// Offer is the metadata of one ordinal, reported before any plan needs it.
type Offer struct {
	millrace.SampleMeta
	Quarantine *millrace.Quarantine // the fact to record; set if Rejected is set
	Runs       tokenid.Runs         // of an ordinal that plans may cut, if labels are left out of the loss
}

// Batch is the next metadata of a stripe, in ordinal order.
type Batch struct {
	Offers     []Offer
	SeekPoints []millrace.SeekPoint // of blocks that start at or before the next offer; block orders only
	End        bool                 // no offer follows
	EndOrdinal millrace.Ordinal     // with End: the number of ordinals of the source, over all stripes
}

// Request asks for tokens Offset … Offset+Length of a document. They are of the ordinal's piece.
type Request struct {
	Ordinal millrace.Ordinal
	Offset  uint32
	Length  uint32
}

// SampleError is the error of a document that cannot be served although it was offered. It wraps millrace.ErrBadSample.
type SampleError struct {
	Ordinal    millrace.Ordinal
	Quarantine millrace.Quarantine
}

// Error names the sample and the reason.
func (e *SampleError) Error() string {
	q := &e.Quarantine
	return fmt.Sprintf("fetch %s %s (ordinal %d): %s", q.Source, q.ID, e.Ordinal, q.Reason)
}

// Sample returns the document's ordinal and the fact to record.
func (e *SampleError) Sample() (millrace.Ordinal, millrace.Quarantine) {
	return e.Ordinal, e.Quarantine
}

// Unwrap returns millrace.ErrBadSample.
func (e *SampleError) Unwrap() error { return millrace.ErrBadSample }

// separate sorts an error: it joins a bad sample to bad, and returns any other error as other.
func separate(bad, err error) (samples, other error) {
	var sample *SampleError
	if errors.As(err, &sample) {
		return errors.Join(bad, err), nil
	}
	return bad, err
}

// batchOffers bounds the offers of one Batch.
const batchOffers = 4096

// offer takes the offers that can be made now.
func (c *chooser) offer() (b Batch) {
	at := &c.cursor
	for at.offered < at.want && len(b.Offers) < batchOffers {
		p := c.queue.spanAt(at.offered)
		if p == nil || !p.known {
			break
		}
		until := min(p.hi, at.want, at.offered+uint64(batchOffers-len(b.Offers)))
		b.Offers = slices.Grow(b.Offers, int(until-at.offered))
		for ; at.offered < until; at.offered++ {
			b.Offers = append(b.Offers, c.offerOf(p, at.offered))
		}
	}
	if at.isEnded() {
		b.End, b.EndOrdinal = true, at.end
	}
	if c.blocks != nil && (len(b.Offers) > 0 || b.End) {
		b.SeekPoints = c.blocks.takeSeekPoints(at.stripe.Ordinal(at.offered))
	}
	return b
}

// offerOf returns the offer of a position in a known span.
func (c *chooser) offerOf(p *span, position uint64) Offer {
	at := uint32(position - p.lo)
	s := &p.slots[at]
	n := c.cursor.stripe.Ordinal(position)
	o := Offer{SampleMeta: millrace.SampleMeta{
		Ordinal: n,
		Epoch:   c.epochOf(p, n),
		ID:      millrace.SampleID{Shard: s.Shard, Record: s.Record},
		Offset:  s.Start,
		Lengths: millrace.Lengths{Tokens: s.Length},

		Untrained: s.Untrained,
	}, Runs: p.runs[at]}
	if p.patches != nil {
		o.Lengths.Patches = p.patches[at]
	}
	if p.refused != nil {
		o.Refused = uint64(p.refused[at])
	}
	if q, ok := p.rejects[at]; ok {
		o.Rejected = true
		o.Quarantine = &q
	}
	return o
}

func (c *chooser) epochOf(p *span, n millrace.Ordinal) millrace.Epoch {
	if p.block != nil {
		return p.block.seekPoint.Epoch
	}
	return c.src.Global().EpochOf(n)
}
