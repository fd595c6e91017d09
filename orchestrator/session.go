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

// drain carries messages until ctx ends or send fails. Once stopped, it carries what was said last and ends with errStopped. It is the
// stream's only sender.
func (b *outbox) drain(ctx context.Context, stopped <-chan struct{}, send func(any) error) error {
	for {
		over := false
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-b.ready:
		case <-stopped:
			over = true
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
		if over {
			return errStopped
		}
	}
}
