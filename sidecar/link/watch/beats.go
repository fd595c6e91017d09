package watch

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"millrace/internal/heartbeat"
	"millrace/proto"
)

// A loader that answers shows that it lives. A sidecar asks for beats if no reply has come for askAfter. The stream
// ends when it was not needed for lingerBeats, which costs about as much as another stream.
const (
	askAfter    = 20 * time.Millisecond
	lingerBeats = 200 * time.Millisecond
)

// retryAfter is the pause before a stream that has ended is opened again.
const retryAfter = 20 * time.Millisecond

// beats is the stream of beats of a loader of another host. The watcher's lock guards it. A nil *beats is of a loader
// of this host.
type beats struct {
	address string
	wire    heartbeat.Wire     // has a lock of its own
	cancel  context.CancelFunc // ends the stream; nil: none is open
	isOver  bool               // it was ended
	isQuiet bool               // the loader sends no beats: only the end of a stream shows that it is dead

	asked  uint64    // messages that were no beats, when the newest request began
	rows   uint64    // the same at the last look
	since  time.Time // of the last of them, or of the first request that has no reply
	needed time.Time // the last time at which the loader owed a reply for askAfter
}

// begin notes a request. The one before may have ended without a reply, because the standby was asked as well and
// answered first. Then the loader has owed a reply since that request.
func (b *beats) begin(now time.Time, isFirst bool) {
	if b == nil {
		return
	}
	rows := b.wire.Rows()
	if isFirst && (b.since.IsZero() || rows != b.asked) {
		b.since = now
	}
	b.asked = rows
}

// owes reports whether the newest request has no reply yet, and beats show whether the loader lives.
func (b *beats) owes() bool { return b.isOpen() && b.wire.Rows() == b.asked }

// isOpen reports whether there is a stream.
func (b *beats) isOpen() bool { return b != nil && b.cancel != nil && !b.isOver }

// look notes whether the loader owes a reply.
func (b *beats) look(now time.Time) {
	if b == nil {
		return
	}
	if rows := b.wire.Rows(); rows != b.rows {
		b.rows, b.since = rows, now
	}
	if now.Sub(b.since) >= askAfter {
		b.needed = now
	}
}

// isMute reports whether the loader sends no beats.
func (b *beats) isMute() bool { return b != nil && b.isQuiet }

// close ends the stream.
func (b *beats) close() {
	if b != nil && b.cancel != nil {
		b.cancel()
	}
}

// tend opens the streams of beats of the loaders that owe a reply, and closes those that are not needed. It returns the
// pause until it is due, 0 if no stream is open.
func (w *Watcher) tend(ctx context.Context, streams *errgroup.Group) (pause time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.cfg.Clock.Now()
	for _, x := range w.byAddress {
		switch b := x.beats; {
		case b == nil:
		case b.cancel == nil:
			if x.requests > 0 && !b.isQuiet && now.Sub(b.since) >= askAfter {
				of, cancel := context.WithCancel(ctx)
				b.cancel, b.needed = cancel, now
				streams.Go(func() error { w.hear(of, x); return nil })
			}
		default:
			if left := b.needed.Add(lingerBeats).Sub(now); left <= 0 {
				b.isOver = true
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
	x.beats.cancel, x.beats.isOver = nil, false
}

// hearStream takes the beats of one stream.
func (w *Watcher) hearStream(ctx context.Context, x *Watched) error {
	conn, err := w.cfg.Dial(x.beats.address)
	if err != nil {
		return err
	}
	x.beats.wire.Opening(w.cfg.Clock.Now(), conn.GetState() == connectivity.Ready)
	stream, err := proto.NewLoaderClient(conn).Beat(ctx, &proto.BeatRequest{})
	for err == nil {
		var b *proto.BeatReply
		if b, err = stream.Recv(); err != nil {
			break
		}
		w.take(x, heartbeat.Beat{Progress: b.Progress, Pending: b.Pending, Slow: int(b.Slow),
			Stalled: time.Duration(b.StalledMs) * time.Millisecond,
			Period:  time.Duration(b.PeriodMs) * time.Millisecond})
	}
	return err
}

// take takes a beat of a loader.
func (w *Watcher) take(x *Watched, b heartbeat.Beat) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.cfg.Clock.Now()
	x.beats.wire.Hear(now, b)
	x.judge.Returned(now, b)
}

// Life returns the other signs of life of a watched loader of another host, nil for other loaders.
func (x *Watched) Life() *heartbeat.Wire {
	if x == nil || x.beats == nil {
		return nil
	}
	return &x.beats.wire
}
