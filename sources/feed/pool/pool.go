package pool

import (
	"container/heap"
	"context"
	"sync"

	"golang.org/x/sync/errgroup"

	"millrace/sources/feed/decode"
)

// Feed is the part of a feed that the pool uses.
type Feed interface {
	// Step does the feed's most urgent work with a decoder, or nothing if there is none. Several decoders may be in one
	// feed at the same time.
	Step(d *decode.Decoder)
}

// Pool shares a number of decoders among feeds. It is safe for concurrent use. Its lock is the innermost: the pool
// calls feeds without it.
//
// Invariants: (1) a member that was offered is stepped after the offer, or has left; (2) between Hurry and Calm, at
// most one decoder does work that nobody waits for.
type Pool struct {
	size  int
	fresh func() *decode.Decoder

	mu      sync.Mutex
	changed *sync.Cond // a worker, or a member that leaves, may go on
	queue   queue
	turns   uint64
	hurries int               // Hurry calls without their Calm
	patient int               // decoders that do work which nobody waits for
	helpers int               // Helper calls without their end
	spare   []*decode.Decoder // of random reads, for reuse
	over    bool
}

// New returns a pool of size decoders, which fresh makes. Run starts it.
func New(size int, fresh func() *decode.Decoder) *Pool {
	p := &Pool{size: max(size, 1), fresh: fresh}
	p.changed = sync.NewCond(&p.mu)
	return p
}

// Size returns the number of decoders.
func (p *Pool) Size() int { return p.size }

// Member is one feed's place in a pool.
type Member struct {
	pool    *Pool
	feed    Feed
	urgency Urgency
	turn    uint64
	at      int // in the queue; unqueued if it is not there
	inside  int // decoders in the feed
	left    bool
}

const unqueued = -1

// Join adds a feed. The caller calls Leave.
func (p *Pool) Join(f Feed) *Member { return &Member{pool: p, feed: f, at: unqueued} }

// Offer tells the pool that the feed may have work. The caller may hold the feed's lock.
func (m *Member) Offer(u Urgency) {
	p := m.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case m.left:
		return
	case m.at == unqueued:
		p.turns++
		m.urgency, m.turn = u, p.turns
		heap.Push(&p.queue, m)
	default:
		m.urgency = u
		heap.Fix(&p.queue, m.at)
	}
	p.changed.Signal()
}

// Leave ends the membership and waits until no decoder is in the feed. The caller does not hold the feed's lock.
func (m *Member) Leave() {
	p := m.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	m.left = true
	if m.at != unqueued {
		heap.Remove(&p.queue, m.at)
	}
	for m.inside > 0 {
		p.changed.Wait()
	}
	p.changed.Broadcast() // this wait may have taken a worker's signal
}

// Run runs the decoders until ctx ends and returns its error.
func (p *Pool) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.over = true
		p.changed.Broadcast()
	})
	defer stop()
	var group errgroup.Group
	for range p.size {
		group.Go(func() error {
			p.work()
			return nil
		})
	}
	_ = group.Wait() // work has no error
	return context.Cause(ctx)
}

// work steps one feed after another.
func (p *Pool) work() {
	d := p.fresh()
	for {
		m, patient := p.next()
		if m == nil {
			return
		}
		m.feed.Step(d)
		p.end(m, patient)
	}
}

// next waits for the most urgent member and removes it from the queue. It returns nil once the pool ends. patient
// reports whether nobody waits for the work.
func (p *Pool) next() (m *Member, patient bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.over {
		if len(p.queue) == 0 || p.mustWait() {
			p.changed.Wait()
			continue
		}
		m = heap.Pop(&p.queue).(*Member)
		m.inside++
		if patient = m.urgency.Class > Wanted; patient {
			p.patient++
		}
		return m, patient
	}
	return nil, false
}

// mustWait reports whether the most urgent member waits for the end of a hurry; mu is held.
func (p *Pool) mustWait() bool {
	return p.hurries > 0 && p.patient > 0 && p.queue[0].urgency.Class > Wanted
}

// end ends a step.
func (p *Pool) end(m *Member, patient bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m.inside--
	if patient {
		p.patient--
	}
	if m.left || p.hurries > 0 {
		p.changed.Broadcast()
	}
}

// Hurry announces that a fetch, or the opening of a source, waits. Until Calm, one decoder at most works ahead.
func (p *Pool) Hurry() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hurries++
}

// Calm ends one Hurry.
func (p *Pool) Calm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hurries--; p.hurries == 0 {
		p.changed.Broadcast()
	}
}

// IsBusy reports whether work waits for a decoder, or somebody waits for a fetch.
func (p *Pool) IsBusy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hurries > 0 || len(p.queue) > 0
}

// Borrow returns a decoder for a read outside the feeds' steps. The caller calls Return.
func (p *Pool) Borrow() *decode.Decoder {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.spare); n > 0 {
		d := p.spare[n-1]
		p.spare = p.spare[:n-1]
		return d
	}
	return p.fresh()
}

// Return takes back a decoder whose part was finished.
func (p *Pool) Return(d *decode.Decoder) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.spare) < p.size {
		p.spare = append(p.spare, d)
	}
}

// TryHelp reports whether one more goroutine may help with a read outside the feeds' steps. If so, the caller calls
// EndHelp. So the goroutines of such reads do not grow with the reads.
func (p *Pool) TryHelp() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.helpers >= p.size {
		return false
	}
	p.helpers++
	return true
}

// EndHelp ends one TryHelp.
func (p *Pool) EndHelp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.helpers--
}
