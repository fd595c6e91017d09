package loader

import (
	"context"
	"os"
	"time"

	"millrace/internal/activity"
	"millrace/internal/wire"
	"millrace/proto"
	"millrace/sources/store/cache"
)

// figuresEvery is the time between two reports of the token cache.
const figuresEvery = time.Second

// reportCache reports the figures of the token cache until ctx ends. It sends them to each new session, and when they
// have changed.
func (l *Loader) reportCache(ctx context.Context) error {
	host, err := os.Hostname()
	if err != nil {
		host = "?" // the name only distinguishes the stores of several hosts
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
		if out == nil || !out.queue.IsIdle() || out == told && now == last {
			continue
		}
		m := &proto.CacheFigures{Store: store, Hits: now.Hits, Misses: now.Misses, Held: now.Held, Limit: now.Limit,
			Filled: now.Filled, Evicted: now.Evicted, Damaged: now.Damaged, Waiting: now.Waiting, LeftOut: now.LeftOut,
			Failed: now.Failed, Trouble: now.Trouble}
		// A lost stream is no fault: the next session gets the figures again.
		out.send(0, &proto.LoaderEvent{Event: &proto.LoaderEvent_Cache{Cache: m}})
		told, last = out, now
	}
}

// activityEvery is the time between two reports of activities: a trainer's wait is explained within a second.
const activityEvery = 500 * time.Millisecond

// reportFigures reports the loader's activities until ctx ends: all sources to each new session, then those with news.
func (l *Loader) reportFigures(ctx context.Context) error {
	var reached *reporter
	var told map[string]activity.Total
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.cfg.Clock.After(activityEvery):
		}
		out := l.newest()
		if out == nil || !out.queue.IsIdle() {
			continue
		}
		if out != reached {
			reached, told = out, map[string]activity.Total{}
		}
		figures := wire.FiguresToProto(l.cfg.Meter, l.cfg.Name, l.cfg.Pid, told)
		figures.Lanes = l.lanes()
		figures.StarvedMs = uint32(l.cfg.Beat.Starved(l.cfg.Clock.Now()).Milliseconds())
		// A lost stream is no fault: the next session gets the figures again.
		out.send(0, &proto.LoaderEvent{Event: &proto.LoaderEvent_Figures{Figures: figures}})
	}
}

// lanes returns the documents that a loader makes at once, 0 while it reads no stripe: a shadow's work is no measure
// for the number of loaders.
func (l *Loader) lanes() uint32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.isPrimary() {
		return 0
	}
	return uint32(l.cfg.Parallel)
}

// Current implements proto.LoaderServer.
func (l *Loader) Current(_ context.Context, req *proto.CurrentRequest) (*proto.Activity, error) {
	now := wire.CurrentToProto(l.cfg.Meter.Current(req.Source), l.cfg.Name, l.cfg.Pid)
	if now == nil {
		now = &proto.Activity{Role: l.cfg.Name, Pid: l.cfg.Pid}
	}
	return now, nil
}
