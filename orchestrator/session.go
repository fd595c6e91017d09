package orchestrator

import (
	"context"
	"sync"
)

// outbox is a Session: what is sent waits here, in order, for the stream that carries it. The loop never blocks on a slow role; what
// can wait is bounded by the runway.
type outbox struct {
	mu    sync.Mutex
	queue []any
	ready chan struct{} // holds one token while the queue is not empty
}

func newOutbox() *outbox { return &outbox{ready: make(chan struct{}, 1)} }

// Send implements Session.
func (b *outbox) Send(msg any) {
	b.mu.Lock()
	b.queue = append(b.queue, msg)
	b.mu.Unlock()
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

// drain carries messages until ctx ends or send fails.
func (b *outbox) drain(ctx context.Context, send func(any) error) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-b.ready:
		}
		b.mu.Lock()
		queue := b.queue
		b.queue = nil
		b.mu.Unlock()
		for _, msg := range queue {
			if err := send(msg); err != nil {
				return err
			}
		}
	}
}

// flush carries what is still there and returns.
func (b *outbox) flush(send func(any) error) error {
	b.mu.Lock()
	queue := b.queue
	b.queue = nil
	b.mu.Unlock()
	for _, msg := range queue {
		if err := send(msg); err != nil {
			return err
		}
	}
	return nil
}
