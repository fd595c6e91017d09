package loader

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"millrace/internal/heartbeat"
	"millrace/internal/seam"
	"millrace/proto"
)

// delayEvery is the time between two measures of the delay of a timer.
const delayEvery = 50 * time.Millisecond

// timeDelays notes long delays of the timers of this process, until ctx ends. A process that gets too little processor
// time reports so before a watcher of another host asks for its beats.
func timeDelays(ctx context.Context, page *heartbeat.Page, clock seam.Clock) error {
	for {
		began := clock.Now()
		select {
		case <-ctx.Done():
			return nil
		case <-clock.After(delayEvery):
		}
		now := clock.Now()
		page.Delayed(now, now.Sub(began)-delayEvery)
	}
}

// Beat implements proto.LoaderServer: it beats until the watcher leaves. A watcher that does not read holds at most the
// buffers of one connection.
func (l *Loader) Beat(_ *proto.BeatRequest, stream proto.Loader_BeatServer) error {
	if l.cfg.Beat == nil {
		return status.Errorf(codes.Unimplemented, "%s has no heartbeat", l.cfg.Name)
	}
	defer l.cfg.Beat.Listen()()
	for {
		b := l.cfg.Beat.Beat(l.cfg.Clock.Now())
		err := stream.Send(&proto.BeatReply{Progress: b.Progress, Pending: b.Pending, Slow: uint32(b.Slow),
			StalledMs: uint32(b.Stalled.Milliseconds()), PeriodMs: uint32(b.Period.Milliseconds())})
		if err != nil {
			return err
		}
		sent := l.cfg.Clock.Now() // behind a slow connection, Send waits
		select {
		case <-stream.Context().Done():
			return nil
		case <-l.cfg.Clock.After(b.Period):
		}
		next := l.cfg.Clock.Now()
		l.cfg.Beat.Late(next, next.Sub(sent)-b.Period)
	}
}
