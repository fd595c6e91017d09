package loader

import (
	"context"
	"os"
	"time"

	"millrace/proto"
	"millrace/sources/cache"
)

// figuresEvery is the time between two reports of the token cache.
const figuresEvery = time.Second

// reportCache reports the figures of the token cache until ctx ends. It sends them to each new session, and when they
// have changed.
func (l *Loader) reportCache(ctx context.Context) error {
	host, err := os.Hostname()
	if err != nil {
		host = "?" // the name only tells stores of several hosts apart
	}
	store := host + ":" + l.cfg.Cache.Dir()
	var told *reporter
	var last cache.Figures
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.cfg.Clock.After(figuresEvery):
		}
		out, now := l.newest(), l.cfg.Cache.Figures()
		if out == nil || out == told && now == last {
			continue
		}
		m := &proto.CacheFigures{Store: store, Hits: now.Hits, Misses: now.Misses, Held: now.Held, Limit: now.Limit,
			Filled: now.Filled, Evicted: now.Evicted, Damaged: now.Damaged, Waiting: now.Waiting, LeftOut: now.LeftOut,
			Failed: now.Failed, Trouble: now.Trouble}
		// A lost stream is no fault: the next session gets the figures again.
		_ = out.send(0, &proto.LoaderEvent{Event: &proto.LoaderEvent_Cache{Cache: m}})
		told, last = out, now
	}
}
