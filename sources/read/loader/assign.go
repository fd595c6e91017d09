package loader

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"millrace"
	"millrace/internal/event"
	"millrace/internal/wire"
	"millrace/proto"
	"millrace/sources"
	"millrace/sources/read/feed"
	"millrace/sources/read/order"
)

// read begins a stripe. If the loader already reads the stripe, and has released no needed document, that reading
// continues. Only the session calls read.
func (l *Loader) read(ctx context.Context, out *reporter, order *proto.ReadFrom, group *errgroup.Group) error {
	of := stripe{order.Source, order.Stripe}
	l.mu.Lock()
	src, old := l.open[order.Source], l.reads[of.source][of.index]
	l.mu.Unlock()
	if src == nil {
		return millrace.Errorf(millrace.ErrInvalid,
			"read source %s: the orchestrator ordered it before the source was opened", order.Source)
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
	src, err := ordered(ctx, src, order)
	if err != nil {
		return l.fatal(ctx, out, of.source, err)
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
		return l.fatal(ctx, r.markFailed(), of.source, err)
	})
	return nil
}

// ordered returns a source in the order that its ordinals have in this run.
func ordered(ctx context.Context, src *sources.Source, order *proto.ReadFrom) (*sources.Source, error) {
	eras, err := millrace.DecodeEras(order.Eras)
	if err != nil {
		return nil, fmt.Errorf("read source %s: %w", order.Source, err)
	}
	if src, err = src.InPieces(ctx, order.PieceTokens); err != nil {
		return nil, err
	}
	return src.InEras(eras)
}

func (l *Loader) newReading(src *sources.Source, out *reporter, assigned *proto.ReadFrom) *reading {
	at := feed.Position{
		Ordinal:   millrace.Ordinal(assigned.Ordinal),
		SeekPoint: wire.SeekPointFromProto(assigned.SeekPoint),
	}
	feed := feed.New(src, at, order.Stripe{Index: assigned.Stripe, Of: assigned.Stripes}, feed.Config{
		Budget:   l.budget,
		Pool:     l.pool,
		Recent:   l.recent,
		Standby:  assigned.Standby,
		Progress: l.cfg.Beat.Progress,
		Fail:     l.cfg.Fail,
	})
	r := &reading{
		of:      stripe{assigned.Source, assigned.Stripe},
		stripes: assigned.Stripes,
		piece:   assigned.PieceTokens,
		eras:    string(assigned.Eras),
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

// promote makes this loader the primary of a stripe that it follows. An order with another term came too late.
func (l *Loader) promote(out *reporter, order *proto.Promote) {
	r := l.reading(stripe{order.Source, order.Stripe})
	if r == nil || r.term.Load() != order.Term {
		l.cfg.Log.Warn("the orchestrator promotes this loader on a stripe that it does not follow",
			"source", order.Source, "stripe", order.Stripe, "term", order.Term)
		return
	}
	l.cfg.Fail.Hit("loader/promote/before")
	r.mu.Lock()
	r.out = out
	if r.standby {
		r.becomePrimary()
	}
	r.mu.Unlock()
	l.cfg.Term(millrace.Term(order.Term))
	l.tellRole()
	l.cfg.Fail.Hit("loader/promote/after")
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
		// A lost stream is no fault of the reading: the next session repeats the batches in told.
		r.out.offer(offers(r.of, r.term.Load(), b))
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
