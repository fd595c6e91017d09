package budget

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// Large bounds the large documents that a process decodes at the same time. Together they have at most the bytes that
// one document may have. It is safe for concurrent use.
//
// A holder of room never waits for more room or for the receiver of its document, so it always gives its room back.
type Large struct{ parts *semaphore.Weighted }

// largeParts is the number of equal parts of the room.
const largeParts = 1 << 20

// NewLarge returns room that is all free.
func NewLarge() *Large { return &Large{semaphore.NewWeighted(largeParts)} }

// Take waits for room for a document of `bytes` bytes, in the order of the calls. `limit` is the most that one document
// may have. A longer document takes all room. The caller calls give; further calls of it do nothing. The error is that
// of ctx.
func (l *Large) Take(ctx context.Context, bytes, limit int64) (give func(), err error) {
	n := largeParts * min(bytes, limit) / limit
	if err := l.parts.Acquire(ctx, n); err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() { l.parts.Release(n) }), nil
}
