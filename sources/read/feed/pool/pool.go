package pool

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"millrace/sources/read/budget"
	"millrace/sources/read/feed/decode"
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
// most one decoder does work that no caller waits for; (3) at most size decoders are in one feed.
type Pool struct {
	size  int
	fresh func() *decode.Decoder
	store decode.Store
	large *budget.Large

	mu      sync.Mutex
	changed *sync.Cond // a worker, or a member that leaves, may continue
	queue   queue
	turns   uint64
	hurries int // Hurry calls without their Calm
	patient int // decoders that do work which no caller waits for
	over    bool

	workers sync.WaitGroup
	running int         // workers
	idle    int         // of them, those that wait for work
	taken   uint64      // steps so far
	watch   *time.Timer // nil if no worker is missed

	spare   []*decode.Decoder // of random reads, for reuse
	reads   int               // random reads that decode now
	moved   time.Time         // a random read began or ended last
	readers []chan struct{}   // random reads that wait
}

// grace is the longest wait for a decoder without progress. A read of a file that does not answer keeps its decoder for
// long. After this time another decoder starts for the other feeds.
const grace = 100 * time.Millisecond

// New returns a pool of size decoders. fresh makes them, for the room that they share. Run starts the pool. texts is
// the file for texts of blocks; nil: they stay in memory.
func New(size int, texts *decode.File, fresh func(*budget.Large) *decode.Decoder) *Pool {
	store := decode.Store{Slabs: make(decode.Slabs, spareSlabs), File: texts}
	p := &Pool{size: max(size, 1), store: store, large: budget.NewLarge()}
	p.fresh = func() *decode.Decoder { return fresh(p.large) }
	p.changed = sync.NewCond(&p.mu)
	return p
}

// spareSlabs bounds the slabs kept for reuse.
const spareSlabs = 8 << 20 / decode.SlabBytes

// Store returns the store of the texts of all feeds.
func (p *Pool) Store() decode.Store { return p.store }

// Large returns the room for large records, which all readers of the process share.
func (p *Pool) Large() *budget.Large { return p.large }

// Size returns the number of decoders.
func (p *Pool) Size() int { return p.size }

// Member is one feed's place in a pool.
type Member struct {
	pool    *Pool
	feed    Feed
	urgency Urgency
	turn    uint64
	at      int  // in the queue; unqueued if it is not there
	inside  int  // decoders in the feed
	full    bool // it was offered while size decoders were inside
	left    bool
}

const unqueued = -1

// Join adds a feed. The caller calls Leave.
func (p *Pool) Join(f Feed) *Member { return &Member{pool: p, feed: f, at: unqueued} }

// Offer notes in the pool that the feed may have work. The caller may hold the feed's lock.
func (m *Member) Offer(u Urgency) {
	p := m.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	m.urgency = u
	switch {
	case m.left:
		return
	case m.at != unqueued:
		heap.Fix(&p.queue, m.at)
	case m.inside == p.size:
		m.full = true
		return
	default:
		p.enter(m)
	}
	p.changed.Signal()
	p.watchOver()
}

// enter queues a member behind its equals; mu is held.
func (p *Pool) enter(m *Member) {
	p.turns++
	m.turn = p.turns
	heap.Push(&p.queue, m)
}

// watchOver starts the timer that looks for decoders without progress, if all are busy; mu is held.
func (p *Pool) watchOver() {
	if p.watch != nil || p.idle > 0 || p.running == 0 || p.over {
		return
	}
	taken := p.taken
	p.watch = time.AfterFunc(grace, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.watch = nil
		if len(p.queue) == 0 || p.over {
			return
		}
		if p.taken == taken {
			p.start()
		}
		p.watchOver()
	})
}

// start starts a worker; mu is held.
func (p *Pool) start() {
	p.running++
	p.workers.Go(p.work)
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
	p.mu.Lock()
	for range p.size {
		p.start()
	}
	p.mu.Unlock()
	<-ctx.Done()
	p.mu.Lock()
	p.over = true
	if p.watch != nil {
		p.watch.Stop()
	}
	p.changed.Broadcast()
	p.mu.Unlock()
	p.workers.Wait()
	return context.Cause(ctx)
}

// work steps one feed after another. A worker beyond size ends as soon as it finds no work.
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
// reports whether no caller waits for the work.
func (p *Pool) next() (m *Member, patient bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.over {
		if len(p.queue) == 0 || p.mustWait() {
			if p.running > p.size {
				break
			}
			p.idle++
			p.changed.Wait()
			p.idle--
			continue
		}
		m = heap.Pop(&p.queue).(*Member)
		m.inside++
		p.taken++
		if patient = m.urgency.Class > Wanted; patient {
			p.patient++
		}
		return m, patient
	}
	p.running--
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
	if m.full && !m.left {
		m.full = false
		p.enter(m)
		p.changed.Signal()
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
