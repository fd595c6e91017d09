package loader

import (
	"context"
	"time"
)

// warmEvery is the interval at which a standby makes the documents at its cursor.
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
