package loader

import (
	"context"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"millrace"
	"millrace/internal/event"
	"millrace/internal/wire"
	"millrace/proto"
	"millrace/sources"
	"millrace/sources/feed"
	"millrace/sources/order"
)

// reading is one stripe of one source, read as its primary or followed as its standby. It keeps offers until they are
// released, so it can repeat them for a restarted orchestrator without another read.
type reading struct {
	of      stripe
	stripes uint32
	feed    *feed.Feed
	cancel  context.CancelFunc
	own     chan struct{} // closed when the stripe is this loader's own

	term    atomic.Uint64 // of the assignment
	mu      sync.Mutex    // keeps offers in order, so it is held while they are sent
	out     *reporter
	standby bool
	ready   bool             // a standby that can take over at once
	from    millrace.Ordinal // first ordinal that was not released
	wants   millrace.Ordinal // of the stripe's primary
	told    []feed.Batch     // offers that the orchestrator may still need, in order
	failed  bool             // the feed has ended with an error
}

// read begins a stripe. If the stripe is being read already, and nothing that is needed was released, that reading goes
// on. Only the session calls read.
func (l *Loader) read(ctx context.Context, out *reporter, order *proto.ReadFrom, group *errgroup.Group) error {
	of := stripe{order.Source, order.Stripe}
	l.mu.Lock()
	src, old := l.open[order.Source], l.reads[of.source][of.index]
	l.mu.Unlock()
	if src == nil {
		return millrace.Errorf(millrace.ErrInvalid, "told to read source %s before it was opened", order.Source)
	}
	l.cfg.Fail.Hit("loader/assign/before")
	defer l.cfg.Fail.Hit("loader/assign/after")
	defer l.tellRole()
	if !order.Standby {
		l.cfg.Term(millrace.Term(order.Term))
	}
	l.endOthers(order)
	// The record comes before the term is valid, so every answer under the term comes after it.
	l.cfg.Events.Write(
		event.Record{Event: "reading", Term: order.Term, Step: -1, Rank: -1, Micro: -1, Key: of.String()},
	)
	if old != nil {
		if old.adopt(out, order) {
			return nil
		}
		old.cancel()
	}
	r := l.newReading(src, out, order)
	own, cancel := context.WithCancel(ctx)
	r.cancel = cancel
	l.mu.Lock()
	if l.reads[of.source] == nil {
		l.reads[of.source] = map[uint32]*reading{}
	}
	l.reads[of.source][of.index] = r
	l.mu.Unlock()
	group.Go(func() error {
		err := l.follow(own, r)
		if err == nil {
			err = l.serve(own, r)
		}
		if err == nil || own.Err() != nil {
			return nil // another reading took over, or the process leaves
		}
		return l.fatal(ctx, r.fail(), of.source, err)
	})
	return nil
}

func (l *Loader) newReading(src *sources.Source, out *reporter, assigned *proto.ReadFrom) *reading {
	at := feed.Position{
		Ordinal:   millrace.Ordinal(assigned.Ordinal),
		SeekPoint: wire.SeekPointFromProto(assigned.SeekPoint),
	}
	feed := feed.New(src, at, order.Stripe{Index: assigned.Stripe, Of: assigned.Stripes}, feed.Config{
		Budget:   l.budget,
		Parallel: l.cfg.Parallel,
		Standby:  assigned.Standby,
		Progress: l.cfg.Beat.Progress,
		Fail:     l.cfg.Fail,
	})
	r := &reading{
		of:      stripe{assigned.Source, assigned.Stripe},
		stripes: assigned.Stripes,
		feed:    feed,
		own:     make(chan struct{}),
		out:     out,
		standby: assigned.Standby,
		from:    at.Ordinal,
	}
	r.term.Store(assigned.Term)
	if !assigned.Standby {
		close(r.own)
	}
	return r
}

// endOthers ends the readings of a source whose number of stripes has changed.
func (l *Loader) endOthers(order *proto.ReadFrom) {
	for _, r := range l.readings(order.Source) {
		if r.stripes != order.Stripes {
			l.drop(r.of, r.term.Load())
		}
	}
}

// drop ends a reading if it has this term.
func (l *Loader) drop(of stripe, term uint64) {
	r := l.reading(of)
	if r == nil || r.term.Load() != term {
		return
	}
	l.mu.Lock()
	if delete(l.reads[of.source], of.index); len(l.reads[of.source]) == 0 {
		delete(l.reads, of.source)
	}
	l.mu.Unlock()
	r.cancel()
	l.tellRole()
}

// tellRole calls Role if the process became a shadow or a primary. A shadow follows stripes and is primary of none.
func (l *Loader) tellRole() {
	l.mu.Lock()
	shadow := (l.cfg.Standby || len(l.reads) > 0) && !l.isPrimary()
	changed := shadow != l.shadow
	l.shadow = shadow
	l.mu.Unlock()
	if changed {
		l.cfg.Role(shadow)
	}
}

// isPrimary reports whether this loader is the primary of any stripe; l.mu is held.
func (l *Loader) isPrimary() bool {
	for _, stripes := range l.reads {
		for _, r := range stripes {
			if !r.isStandby() {
				return true
			}
		}
	}
	return false
}

// serve reads a stripe ahead and offers it, until ctx ends.
func (l *Loader) serve(ctx context.Context, r *reading) error {
	inner, ictx := errgroup.WithContext(ctx)
	inner.Go(func() error { return r.feed.Run(ictx) })
	inner.Go(func() error { return l.offer(ictx, r) })
	return inner.Wait()
}

// offer reports the offers of the feed until ctx ends.
func (l *Loader) offer(ctx context.Context, r *reading) error {
	for {
		b, err := r.feed.Next(ctx)
		if err != nil {
			return err
		}
		l.cfg.Fail.Hit("loader/offer/before")
		r.mu.Lock()
		r.told = append(r.told, b)
		// A lost stream is no fault of the reading: a new session gets everything in told.
		_ = r.out.send(r.term.Load(),
			&proto.LoaderEvent{Event: &proto.LoaderEvent_Offers{Offers: offers(r.of.source, r.of.index, b)}})
		r.mu.Unlock()
		l.cfg.Fail.Hit("loader/offer/after")
		if b.End {
			l.cfg.Events.Write(
				event.Record{Event: "read", Term: r.term.Load(), Step: -1, Rank: -1, Micro: -1, Key: r.of.String()},
			)
			return nil
		}
	}
}

// adopt gives a reading to a new session, if nothing that the session needs was released. It repeats the offers from
// the requested ordinal on. A standby that gets an order to read is promoted.
func (r *reading) adopt(out *reporter, order *proto.ReadFrom) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := millrace.Ordinal(order.Ordinal)
	if order.Stripes != r.stripes || at < r.from || r.failed || order.Standby && !r.standby {
		return false
	}
	r.forget(at, wire.SeekPointFromProto(order.SeekPoint))
	r.out = out
	r.term.Store(order.Term)
	if r.standby && !order.Standby {
		r.promote()
	}
	if r.standby && r.ready {
		r.tellReady()
	}
	for _, b := range r.told {
		_ = out.send(order.Term,
			&proto.LoaderEvent{Event: &proto.LoaderEvent_Offers{Offers: offers(r.of.source, r.of.index, b)}})
	}
	return true
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

// isBelow reports whether all of a batch lies below an ordinal. A batch that ends the stream never does.
func isBelow(b *feed.Batch, below millrace.Ordinal) bool {
	n := len(b.Offers)
	return !b.End && n > 0 && b.Offers[n-1].Ordinal < below
}

// fail notes that the feed has ended, so that no session adopts it. It returns the reporter for the reason.
func (r *reading) fail() *reporter {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
	return r.out
}
