package loader

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"millrace"
	"millrace/internal/failpoint"
	"millrace/internal/wire"
	"millrace/proto"
	"millrace/sources/read/feed"
)

// stripe names a stripe of a source.
type stripe struct {
	source string
	index  uint32
}

func (s stripe) String() string { return fmt.Sprintf("%s/%d", s.source, s.index) }

// reading is one stripe of one source, read as its primary or followed as its standby. It keeps offers until they are
// released, so it can repeat them for a restarted orchestrator without another read.
type reading struct {
	of      stripe
	stripes uint32
	piece   uint32 // tokens of a piece; 0: ordinals are whole documents
	eras    string // the bytes of millrace.Eras
	feed    *feed.Feed
	cancel  context.CancelFunc
	own     chan struct{} // closed when the stripe is this loader's own

	term    atomic.Uint64 // of the assignment
	mu      sync.Mutex    // keeps offers in order, so it is held while they are sent
	out     *reporter
	standby bool
	ready   bool             // the standby can take over at once
	from    millrace.Ordinal // first ordinal that was not released
	wants   millrace.Ordinal // of the stripe's primary
	told    []feed.Batch     // offers that the orchestrator may still need, in order
	failed  bool             // the feed has ended with an error
}

// adopt gives a reading to a new session, unless a document that the session needs was released. It repeats the offers
// from the requested ordinal on. A standby that gets an order to read is promoted.
func (r *reading) adopt(out *reporter, order *proto.ReadFrom) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := millrace.Ordinal(order.Ordinal)
	isOther := order.Stripes != r.stripes || order.PieceTokens != r.piece || string(order.Eras) != r.eras
	if isOther || at < r.from || r.failed || order.Standby && !r.standby {
		return false
	}
	r.forget(at, wire.SeekPointFromProto(order.SeekPoint))
	r.out = out
	r.term.Store(order.Term)
	if r.standby && !order.Standby {
		r.becomePrimary()
	}
	if r.standby && r.ready {
		r.tellReady()
	}
	for _, b := range r.told {
		out.offer(offers(r.of, order.Term, b))
	}
	return true
}

// move carries out an order that says how far to read.
func (l *Loader) move(o *proto.Reading) {
	for i, source := range o.Source {
		for _, r := range l.readings(source) {
			if below := o.Below[i]; below > 0 {
				r.release(millrace.Ordinal(below), wire.SeekPointFromProto(o.SeekPoint[i]))
			}
			if until := o.Until[i]; until > 0 {
				r.want(millrace.Ordinal(until))
			}
		}
	}
}

// want asks for offers below an ordinal. A standby makes none before it is promoted.
func (r *reading) want(until millrace.Ordinal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wants = max(r.wants, until)
	if !r.standby {
		r.feed.Want(r.wants)
	}
}

// release drops offers and tokens below an ordinal.
func (r *reading) release(below millrace.Ordinal, seekPoint millrace.SeekPoint) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(below, seekPoint)
}

// forget is release; mu is held.
func (r *reading) forget(below millrace.Ordinal, seekPoint millrace.SeekPoint) {
	if r.standby {
		r.feed.Follow(below, seekPoint)
	} else {
		r.feed.Release(below)
	}
	r.from = max(r.from, below)
	n := 0
	for n < len(r.told) && isBelow(&r.told[n], below) {
		n++
	}
	r.told = r.told[n:]
}

// isBelow reports whether all of a batch is below an ordinal. A batch that ends the stream never does.
func isBelow(b *feed.Batch, below millrace.Ordinal) bool {
	n := len(b.Offers)
	return !b.End && n > 0 && b.Offers[n-1].Ordinal < below
}

// markFailed notes that the feed has ended, so that no session adopts it. It returns the reporter for the reason.
func (r *reading) markFailed() *reporter {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
	return r.out
}

// setReady notes whether a standby is ready, and reports when it becomes ready.
func (r *reading) setReady(ok bool, fail *failpoint.Set) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.ready
	if r.ready = ok; ok && !was && r.standby {
		fail.Hit("loader/ready/before")
		r.tellReady()
		fail.Hit("loader/ready/after")
	}
}

// tellReady reports that a standby is ready; mu is held.
func (r *reading) tellReady() {
	term := r.term.Load()
	ready := &proto.Ready{Source: r.of.source, Stripe: r.of.index, Term: term}
	r.out.send(term, &proto.LoaderEvent{Event: &proto.LoaderEvent_Ready{Ready: ready}})
}

// becomePrimary starts the reading ahead; mu is held. It is called once.
func (r *reading) becomePrimary() {
	r.standby = false
	r.feed.Want(r.wants)
	close(r.own)
}

// isStandby reports whether the stripe belongs to another loader.
func (r *reading) isStandby() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.standby
}
