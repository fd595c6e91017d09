package watch

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"millrace/internal/heartbeat"
	"millrace/proto"
)

// lingerBeats is the time for which a stream of beats stays open after the last request: longer than most steps. It
// bounds the bytes for an idle loader.
const lingerBeats = 5 * time.Second

// retryAfter is the pause before a stream that has ended is opened again.
const retryAfter = 20 * time.Millisecond

// beats is the stream of beats of a loader of another host. The watcher's lock guards it. A nil *beats is of a loader
// of this host.
type beats struct {
	address string
	wire    heartbeat.Wire     // has a lock of its own
	cancel  context.CancelFunc // ends the stream; nil: none is open
	idle    time.Time          // the end of the last request
	isQuiet bool               // the loader sends no beats: only the end of a stream shows that it is dead
}

// isDue reports whether Patrol is to open the stream for a request.
func (b *beats) isDue() bool { return b != nil && b.cancel == nil }

// isMute reports whether the loader sends no beats.
func (b *beats) isMute() bool { return b != nil && b.isQuiet }

// close ends the stream.
func (b *beats) close() {
	if b != nil && b.cancel != nil {
		b.cancel()
	}
}

// tend opens the streams of beats of the loaders with requests in flight, and closes those that are idle for long. It
// returns the pause until it is due, 0 if no idle stream is open.
func (w *Watcher) tend(ctx context.Context, streams *errgroup.Group) (pause time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.cfg.Clock.Now()
	for _, x := range w.byAddress {
		switch b := x.beats; {
		case b == nil:
		case x.requests > 0 && b.cancel == nil && !b.isQuiet:
			of, cancel := context.WithCancel(ctx)
			b.cancel = cancel
			streams.Go(func() error { w.hear(of, x); return nil })
		case x.requests > 0 || b.cancel == nil:
		default:
			if left := b.idle.Add(lingerBeats).Sub(now); left <= 0 {
				b.cancel()
			} else if pause == 0 || left < pause {
				pause = left
			}
		}
	}
	return pause
}

// hear takes the beats of a loader until ctx ends. A stream that has ended is opened again.
func (w *Watcher) hear(ctx context.Context, x *Watched) {
	for ctx.Err() == nil {
		err := w.hearStream(ctx, x)
		if status.Code(err) == codes.Unimplemented {
			w.mu.Lock()
			x.beats.isQuiet = true
			w.mu.Unlock()
			break
		}
		select {
		case <-ctx.Done():
		case <-w.cfg.Clock.After(retryAfter):
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	x.beats.wire.Off()
	x.beats.cancel()
	x.beats.cancel = nil
	if x.requests > 0 && !x.beats.isQuiet { // a request came meanwhile
		w.wake()
	}
}

// hearStream takes the beats of one stream.
func (w *Watcher) hearStream(ctx context.Context, x *Watched) error {
	conn, err := w.cfg.Dial(x.beats.address)
	if err != nil {
		return err
	}
	stream, err := proto.NewLoaderClient(conn).Beat(ctx, &proto.BeatRequest{})
	for err == nil {
		var b *proto.BeatReply
		if b, err = stream.Recv(); err != nil {
			break
		}
		w.take(x, heartbeat.Beat{Progress: b.Progress, Pending: b.Pending, Slow: int(b.Slow),
			Stalled: time.Duration(b.StalledMs) * time.Millisecond})
	}
	return err
}

// take takes a beat of a loader.
func (w *Watcher) take(x *Watched, b heartbeat.Beat) {
	w.mu.Lock()
	defer w.mu.Unlock()
	x.beats.wire.Hear(b)
	x.judge.Returned(w.cfg.Clock.Now(), b)
}

// Life returns the other signs of life of a watched loader of another host, nil for other loaders.
func (x *Watched) Life() *heartbeat.Wire {
	if x == nil || x.beats == nil {
		return nil
	}
	return &x.beats.wire
}
