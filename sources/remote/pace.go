package remote

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/activity"
)

// sizeClasses is the number of classes of requests by their size: the time of a request depends on it.
const sizeClasses = 4

func classOf(n int) int {
	switch {
	case n <= 64<<10:
		return 0
	case n <= 512<<10:
		return 1
	case n <= 2<<20:
		return 2
	}
	return 3
}

// pace knows the times of the newest requests of one class.
type pace struct {
	mu    sync.Mutex
	times [128]time.Duration
	count int
	limit time.Duration // 0: not known yet
}

const (
	paceLeast = 32 // requests before the limit is known
	paceEvery = 16 // requests between two looks at the times
	slowLeast = 20 * time.Millisecond
)

func (p *pace) note(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.times[p.count%len(p.times)] = d
	p.count++
	if p.count < paceLeast || p.count%paceEvery != 0 {
		return
	}
	sorted := slices.Clone(p.times[:min(p.count, len(p.times))])
	slices.Sort(sorted)
	p.limit = max(sorted[len(sorted)*95/100], slowLeast)
}

// slow returns the time that 95 of 100 requests do not exceed.
func (p *pace) slow() (time.Duration, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.limit, p.limit > 0
}

// counts are the counters of a source.
type counts struct {
	requests, retries, hedges, fetched, used, hits, misses atomic.Int64
}

// hedgePart is the least number of requests for each hedge.
const hedgePart = 25

// mayHedge counts a second request for a slow one, unless there were too many.
func (c *counts) mayHedge() bool {
	n := c.hedges.Load()
	return (n+1)*hedgePart <= c.requests.Load() && c.hedges.CompareAndSwap(n, n+1)
}

// fetches returns the counters of now.
func (c *counts) fetches() activity.Fetches {
	return activity.Fetches{Fetched: c.fetched.Load(), Used: c.used.Load(), Requests: c.requests.Load(),
		Retries: c.retries.Load(), Hedges: c.hedges.Load(), Hits: c.hits.Load(), Misses: c.misses.Load()}
}
