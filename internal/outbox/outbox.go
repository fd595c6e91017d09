// Package outbox queues the messages of one stream, so that a sender never waits for the stream.
package outbox

import (
	"context"
	"runtime"
	"sync"
)

// Outbox is the queue of one stream. A sender never blocks, even while the stream waits for a connection. Once the
// stream has ended, messages are dropped: the sender repeats those that count to the next stream. Safe for concurrent
// use.
type Outbox[M any] struct {
	mu      sync.Mutex
	isOver  bool // the stream has ended
	waiting []M
	queued  chan struct{} // has a token if messages were queued since Send last took them
}

// New returns an empty queue.
func New[M any]() *Outbox[M] { return &Outbox[M]{queued: make(chan struct{}, 1)} }

// Push queues a message behind all others. The caller does not change it any more.
func (o *Outbox[M]) Push(m M) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.isOver {
		return
	}
	o.waiting = append(o.waiting, m)
	select {
	case o.queued <- struct{}{}:
	default:
	}
}

// IsIdle reports whether the stream is open and no message waits for it. Messages that later ones replace are queued
// only then, so that the queue of a stuck stream stays short.
func (o *Outbox[M]) IsIdle() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.isOver && len(o.waiting) == 0
}

// End drops all messages, those that wait and later ones.
func (o *Outbox[M]) End() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.isOver, o.waiting = true, nil
}

// Send sends the messages in their order until ctx ends or send fails. Then the queue ends, and Send calls end, which
// ends the stream for its reader. The reader gets the messages and the reason that came before: gRPC does not report
// them to the sender. After a failed send gRPC may also have begun the stream anew. Without end, that stream would have
// a reader and no sender. merge may turn the messages that wait together into fewer ones; nil sends them as they are.
func (o *Outbox[M]) Send(ctx context.Context, end func(), send func(M) error, merge func([]M) []M) {
	defer end()
	defer o.End()
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.queued:
		}
		if merge != nil {
			runtime.Gosched() // others that were woken for the same reason queue their messages, too
		}
		all := o.take()
		if merge != nil {
			all = merge(all)
		}
		for _, m := range all {
			if send(m) != nil {
				return
			}
		}
	}
}

// take empties the queue.
func (o *Outbox[M]) take() []M {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := o.waiting
	o.waiting = nil
	return all
}
