package loader

import (
	"context"
	"fmt"
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

// reading is one stripe of one source being read under one term, or followed as its standby. Offers are kept until
// they are released, so that a restarted orchestrator is told again without a byte being read again.
type reading struct {
	of      stripe
	stripes uint32
	feed    *feed.Feed
	cancel  context.CancelFunc
	own     chan struct{} // closed when the stripe is this loader's own

	term    atomic.Uint64 // of the assignment
	mu      sync.Mutex    // keeps offers in order; held while they are sent
	out     *reporter
	standby bool
	ready   bool             // as a standby it can take over at once
	from    millrace.Ordinal // first ordinal that was not released
	wants   millrace.Ordinal // of the stripe's primary
	told    []feed.Batch     // what the orchestrator may still need, in order
	failed  bool             // the feed has ended with an error: nothing more comes
}

// openSource opens a source once and reports its manifest. An orchestrator that is back asks again, maybe while the
// opening for its predecessor is under way: then it is waited for.
func (l *Loader) openSource(ctx context.Context, out *reporter, order *proto.OpenSource) error {
	name := order.Source
	gate := l.gate(name)
	gate.Lock()
	defer gate.Unlock()
	l.mu.Lock()
	src := l.open[name]
	l.mu.Unlock()
	if src == nil {
		spec, err := l.cfg.Spec(name)
		if err != nil {
			return l.fatal(ctx, out, name, err)
		}
		if src, err = l.openFiles(ctx, spec, order.Known); err != nil {
			return l.fatal(ctx, out, name, err)
		}
		l.mu.Lock()
		l.open[name] = src
		l.mu.Unlock()
	}
	_ = out.send(0, &proto.LoaderEvent{Event: &proto.LoaderEvent_Manifest{Manifest: wire.ManifestToProto(src.Manifest())}})
	return nil
}

// openFiles opens a source. One that the run has read already is waited for where its files are away.
func (l *Loader) openFiles(ctx context.Context, spec sources.Spec, known bool) (*sources.Source, error) {
	progress := func(done, total int64) {
		_ = l.newest().send(0, &proto.LoaderEvent{Event: &proto.LoaderEvent_Opening{Opening: &proto.Opening{Source: spec.Name, Done: done, Total: total}}})
	}
	troubled := false
	for {
		l.budget.Hurry() // nothing begins before all sources are open
		src, err := sources.Open(ctx, spec, sources.OpenOptions{IndexFS: indexFS(l.cfg.Fail), Spare: true, Progress: progress, Parallel: l.cfg.Parallel, Logger: l.cfg.Log,
			Trouble: func(text string) { l.trouble(spec.Name, text) }, Patient: true, Tried: l.cfg.Beat.Progress})
		l.budget.Calm()
		if err == nil || !known || !sources.Passing(err) || ctx.Err() != nil {
			if troubled {
				l.trouble(spec.Name, "")
			}
			return src, err
		}
		l.trouble(spec.Name, fmt.Sprintf("opening it fails and is tried again: %v", err))
		troubled = true
		select {
		case <-ctx.Done():
		case <-l.cfg.Clock.After(reopen):
		}
	}
}

// trouble tells the orchestrator, this one and those to come, what fails for now; empty: it is over.
func (l *Loader) trouble(source, text string) {
	l.mu.Lock()
	if l.troubles[source] = text; text == "" {
		delete(l.troubles, source)
	}
	out := l.out
	l.mu.Unlock()
	out.trouble(source, text)
}

func (l *Loader) gate(source string) *sync.Mutex {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gates[source] == nil {
		l.gates[source] = &sync.Mutex{}
	}
	return l.gates[source]
}

// read begins a stripe, or goes on with one that is being read already and still holds what is asked for. Only the
// session calls it.
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
	// Before the term holds: whoever is answered under it is answered afterwards.
	l.cfg.Events.Write(event.Record{Event: "reading", Term: order.Term, Step: -1, Rank: -1, Micro: -1, Key: of.String()})
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
	at := feed.Position{Ordinal: millrace.Ordinal(assigned.Ordinal), SeekPoint: wire.SeekPointFromProto(assigned.SeekPoint)}
	feed := feed.New(src, at, order.Stripe{Index: assigned.Stripe, Of: assigned.Stripes},
		feed.Config{Budget: l.budget, Parallel: l.cfg.Parallel, Standby: assigned.Standby, Progress: l.cfg.Beat.Progress, Fail: l.cfg.Fail})
	r := &reading{of: stripe{assigned.Source, assigned.Stripe}, stripes: assigned.Stripes, feed: feed, own: make(chan struct{}), out: out, standby: assigned.Standby, from: at.Ordinal}
	r.term.Store(assigned.Term)
	if !assigned.Standby {
		close(r.own)
	}
	return r
}

// endOthers ends readings of a source that is cut into another number of stripes now.
func (l *Loader) endOthers(order *proto.ReadFrom) {
	for _, r := range l.readings(order.Source) {
		if r.stripes != order.Stripes {
			l.drop(r.of, r.term.Load())
		}
	}
}

// drop ends a reading, if it is of that term.
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

// tellRole tells what the process is: a shadow where it stands by and serves nothing as a primary.
func (l *Loader) tellRole() {
	l.mu.Lock()
	shadow := (l.cfg.Standby || len(l.reads) > 0) && !l.serves()
	changed := shadow != l.shadow
	l.shadow = shadow
	l.mu.Unlock()
	if changed {
		l.cfg.Role(shadow)
	}
}

// serves tells whether any stripe is this loader's own; l.mu is held.
func (l *Loader) serves() bool {
	for _, stripes := range l.reads {
		for _, r := range stripes {
			if !r.standing() {
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

// offer reports what the feed finds, until ctx ends.
func (l *Loader) offer(ctx context.Context, r *reading) error {
	for {
		b, err := r.feed.Next(ctx)
		if err != nil {
			return err
		}
		l.cfg.Fail.Hit("loader/offer/before")
		r.mu.Lock()
		r.told = append(r.told, b)
		// A lost stream is no fault of the reading: a new session is told everything from `told`.
		_ = r.out.send(r.term.Load(), &proto.LoaderEvent{Event: &proto.LoaderEvent_Offers{Offers: offers(r.of.source, r.of.index, b)}})
		r.mu.Unlock()
		l.cfg.Fail.Hit("loader/offer/after")
		if b.End {
			l.cfg.Events.Write(event.Record{Event: "read", Term: r.term.Load(), Step: -1, Rank: -1, Micro: -1, Key: r.of.String()})
			return nil
		}
	}
}

// adopt lets a new session take over a stripe that is being read, if nothing it needs was released; it is told all
// over again, but for what lies below the place that it asks for. A standby that is told to read has been promoted.
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
		_ = out.send(order.Term, &proto.LoaderEvent{Event: &proto.LoaderEvent_Offers{Offers: offers(r.of.source, r.of.index, b)}})
	}
	return true
}

// want asks for offers below an ordinal. A standby makes none, but will be asked for them once it is promoted.
func (r *reading) want(until millrace.Ordinal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wants = max(r.wants, until)
	if !r.standby {
		r.feed.Want(r.wants)
	}
}

// release forgets what nobody can ask for any more.
func (r *reading) release(below millrace.Ordinal, seekPoint millrace.SeekPoint) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(below, seekPoint)
}

// forget is release with mu held.
func (r *reading) forget(below millrace.Ordinal, seekPoint millrace.SeekPoint) {
	if r.standby {
		r.feed.Follow(below, seekPoint)
	} else {
		r.feed.Release(below)
	}
	r.from = max(r.from, below)
	n := 0
	for n < len(r.told) && !r.told[n].End && len(r.told[n].Offers) > 0 && r.told[n].Offers[len(r.told[n].Offers)-1].Ordinal < below {
		n++
	}
	r.told = r.told[n:]
}

// fail notes that the feed is over, so that nobody adopts it, and returns who is to hear of it.
func (r *reading) fail() *reporter {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
	return r.out
}
