package loader

import (
	"context"
	"time"

	"millrace"
	"millrace/internal/failpoint"
	"millrace/proto"
)

// warmEvery is the time between two times at which a standby makes the documents at its cursor.
const warmEvery = time.Second

// follow keeps a standby warm until the stripe is its own. It returns an error only when ctx ends. Failing reads are
// tried again, because only the primary decides that a source cannot go on.
func (l *Loader) follow(ctx context.Context, r *reading) error {
	for {
		select {
		case <-r.own:
			return nil
		default:
		}
		l.cfg.Fail.Hit("loader/warm/before")
		err := r.feed.Warm(ctx)
		l.cfg.Fail.Hit("loader/warm/after")
		r.setReady(err == nil, l.cfg.Fail)
		if err != nil && ctx.Err() == nil {
			l.cfg.Log.Warn("standby cannot read", "source", r.of.source, "stripe", r.of.index, "error", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.own:
			return nil
		case <-l.cfg.Clock.After(warmEvery):
		}
	}
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
	_ = r.out.send(term, &proto.LoaderEvent{Event: &proto.LoaderEvent_Ready{Ready: ready}})
}

// promote makes this loader the primary of a stripe that it follows. An order with another term came too late.
func (l *Loader) promote(out *reporter, order *proto.Promote) {
	r := l.reading(stripe{order.Source, order.Stripe})
	if r == nil || r.term.Load() != order.Term {
		l.cfg.Log.Warn("told to take over a stripe that it does not follow", "source", order.Source,
			"stripe", order.Stripe, "term", order.Term)
		return
	}
	l.cfg.Fail.Hit("loader/promote/before")
	r.mu.Lock()
	r.out = out
	if r.standby {
		r.promote()
	}
	r.mu.Unlock()
	l.cfg.Term(millrace.Term(order.Term))
	l.tellRole()
	l.cfg.Fail.Hit("loader/promote/after")
}

// promote starts the reading ahead; mu is held. It is called once.
func (r *reading) promote() {
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
