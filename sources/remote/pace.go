package remote

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
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

// counts are the counters of a host.
type counts struct {
	requests, retries, hedges, fetched, used, hits, misses atomic.Uint64
}

// hedgePart is the least number of requests for each hedge.
const hedgePart = 25

// mayHedge counts a second request for a slow one, unless there were too many.
func (c *counts) mayHedge() bool {
	n := c.hedges.Load()
	return (n+1)*hedgePart <= c.requests.Load() && c.hedges.CompareAndSwap(n, n+1)
}

// Figures are the figures of a process, since its start.
type Figures struct {
	Requests uint64 // of ranges, with retries and hedges
	Retries  uint64
	Hedges   uint64 // second requests beside slow ones
	Fetched  uint64 // bytes that came from stores
	Used     uint64 // bytes that readers took, from stores or from the cache
	Hits     uint64 // blocks read from the cache of file ranges
	Misses   uint64 // blocks that the cache lacked
}

// Figures returns the figures of now.
func (h *Host) Figures() Figures {
	c := &h.counts
	return Figures{c.requests.Load(), c.retries.Load(), c.hedges.Load(), c.fetched.Load(), c.used.Load(), c.hits.Load(),
		c.misses.Load()}
}
