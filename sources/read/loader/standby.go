package loader

import (
	"context"
	"sync"
	"time"
)

// The pace at which standbys make the documents at their cursors.
const (
	warmEvery = time.Second // least pause of one standby
	warmShare = 100         // all standbys of the process together use at most 1/warmShare of its time
	warmPause = time.Minute // most pause of one standby
	warmBytes = 1 << 20     // of the first tokens of a stripe, at most
	warmPart  = 4           // all sources together have at most 1/warmPart of the process's payload
)

// warmth limits the time that the standbys of a process spend on documents which their primaries have made already. In
// a block order, one document of a compressed file costs the text of its whole block. At a trainer's pace a block lasts
// for minutes, and its text is read once. At full speed the text would be old within a second, and reading all of it
// would double the cost of the run. The zero value is ready.
type warmth struct {
	mu   sync.Mutex
	paid time.Time // the time until which the work so far uses its share
}

// spend counts work that has just ended, and returns the pause of its standby.
func (w *warmth) spend(now time.Time, took time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.paid.Before(now) {
		w.paid = now
	}
	w.paid = w.paid.Add((warmShare - 1) * took)
	if most := now.Add(warmPause); w.paid.After(most) {
		w.paid = most
	}
	return max(warmEvery, w.paid.Sub(now))
}

// follow keeps a standby warm until the stripe is its own. It returns an error only when ctx ends. Failing reads are
// tried again, because only the primary decides that a source cannot continue.
func (l *Loader) follow(ctx context.Context, r *reading) error {
	for {
		select {
		case <-r.own:
			return nil
		default:
		}
		l.cfg.Fail.Hit("loader/warm/before")
		began := l.cfg.Clock.Now()
		err := r.feed.Warm(ctx, l.warmBytes())
		l.cfg.Fail.Hit("loader/warm/after")
		r.setReady(err == nil, l.cfg.Fail)
		if err != nil && ctx.Err() == nil {
			l.cfg.Log.Warn("standby cannot read", "source", r.of.source, "stripe", r.of.index, "error", err)
		}
		pause := warmEvery
		if now := l.cfg.Clock.Now(); err == nil {
			pause = l.warmth.spend(now, now.Sub(began))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.own:
			return nil
		case <-l.cfg.Clock.After(pause):
		}
	}
}

// warmBytes returns the bytes of tokens that a standby makes at its cursor.
func (l *Loader) warmBytes() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return min(warmBytes, l.cfg.Memory/warmPart/int64(max(len(l.reads), 1)))
}
