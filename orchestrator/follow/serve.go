package follow

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"millrace"
	"millrace/checkpoint"
	"millrace/proto"
)

// Serve carries the journal to one follower until its stream ends or stopped is closed. hello is its first message,
// whose version was checked.
func (l *Leader) Serve(hello *proto.FollowerHello, stream proto.Orchestrator_FollowServer,
	stopped <-chan struct{}) error {
	ctx, cut := context.WithCancel(stream.Context())
	defer cut()
	f := &follower{host: hello.Host, identity: hello.Identity, cut: cut, served: make(chan struct{}),
		queue: newQueue(queueLimit)}
	l.join(f)
	defer l.leave(f)
	// Receiving ends with the stream, which ends when the handler returns: its goroutine is not waited for.
	received := make(chan error, 1)
	go func() {
		defer cut()
		for {
			e, err := stream.Recv()
			if err == nil {
				err = l.acknowledge(f, e.GetAck())
			}
			if err != nil {
				received <- err
				return
			}
		}
	}()
	err := l.awaitPlace(ctx, f, stream.Send, stopped)
	if err == nil {
		err = l.ship(ctx, f, stream.Send, stopped)
	}
	select {
	case err = <-received: // the cause
	default:
	}
	if errors.Is(err, errStopped) {
		return millrace.Mark(err, context.Canceled) // no fault of the leader, as the follower knows by this mark
	}
	return err
}

// acknowledge notes that a follower has a batch.
func (l *Leader) acknowledge(f *follower, ack *proto.JournalAck) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ack == nil || ack.Journal == "" || ack.Number > f.sent || ack.Number < f.acked {
		return millrace.Errorf(millrace.ErrInvalid, "follower %s on %s acknowledges batch %d of copy %q, after "+
			"batch %d, and batch %d is the last that was sent", f.identity, f.host, ack.GetNumber(), ack.GetJournal(),
			f.acked, f.sent)
	}
	f.journal, f.acked = ack.Journal, ack.Number
	l.change()
	return nil
}

// awaitPlace returns when a follower has a place.
func (l *Leader) awaitPlace(ctx context.Context, f *follower, send func(*proto.JournalPart) error,
	stopped <-chan struct{}) error {
	select {
	case <-f.served:
		return nil
	default:
	}
	reason := fmt.Sprintf("the journal has followers already: %s", strings.Join(l.hosts(), " and "))
	part := &proto.JournalPart_Waiting{Waiting: &proto.JournalWaiting{Reason: reason}}
	if err := send(&proto.JournalPart{Part: part}); err != nil {
		return err
	}
	select {
	case <-f.served:
		return nil
	case <-stopped:
		return errStopped
	case <-ctx.Done():
		return ctx.Err()
	}
}

// hosts names the hosts of the followers that are served.
func (l *Leader) hosts() (out []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.followers {
		if f.hasPlace {
			out = append(out, f.host)
		}
	}
	return out
}

// ship sends an image of the store and then its batches.
func (l *Leader) ship(ctx context.Context, f *follower, send func(*proto.JournalPart) error,
	stopped <-chan struct{}) error {
	image, err := l.store.Follow(f.queue)
	if err != nil {
		return err
	}
	defer l.store.Unfollow(f.queue)
	if err := l.sendImage(ctx, f, image, send, stopped); err != nil {
		return err
	}
	for {
		n, err := f.queue.next(ctx, stopped)
		if err != nil {
			return err
		}
		l.sends(f, n.number)
		if err := sendBatch(send, n.number, n.batch); err != nil {
			return err
		}
		f.queue.done(n)
	}
}

// sends notes that the follower may acknowledge a batch.
func (l *Leader) sends(f *follower, number uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f.sent = number
}

// sendImage sends an image and closes it.
func (l *Leader) sendImage(ctx context.Context, f *follower, image *checkpoint.Image,
	send func(*proto.JournalPart) error, stopped <-chan struct{}) (err error) {
	defer func() {
		if closed := image.Close(); err == nil {
			err = closed
		}
	}()
	mark := func(parts uint64) error {
		part := &proto.JournalPart_Image{Image: &proto.JournalImage{Number: image.Number(), Parts: parts}}
		return send(&proto.JournalPart{Part: part})
	}
	if err := mark(0); err != nil {
		return err
	}
	for parts := uint64(0); ; parts++ {
		select {
		case <-stopped:
			return errStopped
		case <-ctx.Done():
			return ctx.Err()
		default:
		}
		part, err := image.Next(partSize)
		if err != nil {
			return err
		}
		if part == nil {
			l.sends(f, image.Number())
			return mark(parts)
		}
		if err := sendBatch(send, parts+1, part); err != nil {
			return err
		}
	}
}
