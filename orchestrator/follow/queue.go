package follow

import (
	"context"
	"errors"
	"sync"

	"millrace"
)

// queueLimit bounds the bytes that wait for one follower. A batch that is larger may wait alone.
const queueLimit = 64 << 20

// queue holds the batches that wait for a follower. It gives up a follower that is too slow.
type queue struct {
	limit int // bytes
	ready chan struct{}

	mu      sync.Mutex
	waiting []numbered
	bytes   int
	isOver  bool // gave up
}

// numbered is a batch with its number.
type numbered struct {
	number uint64
	batch  []byte
}

func newQueue(limit int) *queue { return &queue{limit: limit, ready: make(chan struct{}, 1)} }

// Batch implements checkpoint.Feed.
func (q *queue) Batch(number uint64, batch []byte) {
	q.mu.Lock()
	switch {
	case q.isOver:
	case q.bytes+len(batch) > q.limit && q.bytes > 0:
		q.isOver, q.waiting, q.bytes = true, nil, 0
	default:
		q.waiting, q.bytes = append(q.waiting, numbered{number, batch}), q.bytes+len(batch)
	}
	q.mu.Unlock()
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// errStopped ends the streams of a leader that stops.
var errStopped = errors.New("the orchestrator is stopping")

// next returns the next batch, which counts until done. Once stopped, it returns the last ones and then errStopped.
func (q *queue) next(ctx context.Context, stopped <-chan struct{}) (numbered, error) {
	for {
		isLast := false
		select {
		case <-stopped:
			isLast = true
		default:
		}
		q.mu.Lock()
		isOver := q.isOver
		if len(q.waiting) > 0 {
			first := q.waiting[0]
			q.waiting = q.waiting[1:]
			q.mu.Unlock()
			return first, nil
		}
		q.mu.Unlock()
		switch {
		case isOver:
			return numbered{}, millrace.Errorf(millrace.ErrInvalid, "the follower is slow: more than %d bytes of "+
				"batches wait for it; it begins again with an image", q.limit)
		case isLast:
			return numbered{}, errStopped
		}
		select {
		case <-ctx.Done():
			return numbered{}, ctx.Err()
		case <-stopped:
		case <-q.ready:
		}
	}
}

// done gives the room of a batch back.
func (q *queue) done(n numbered) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.isOver {
		q.bytes -= len(n.batch)
	}
}
