package ring

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
)

// ErrPassed is the error if the group has given the batch's frame to another batch: the member came too late and builds
// the batch in memory of its own.
var ErrPassed = errors.New("the group has passed this batch")

// At is the place of a batch in the run.
type At struct {
	Step       uint64
	Microbatch uint32
}

func (a At) before(b At) bool {
	return a.Step < b.Step || a.Step == b.Step && a.Microbatch < b.Microbatch
}

// Group gives the batches of several ranks one copy in memory that trainers can only read. The first member that needs
// a batch builds it. Its frame is free when each member that was going to need it has released it or has left.
//
// The members of a group go at one pace, because a frame waits for the slowest of them. A member that joins behind the
// others gets ErrPassed until it has caught up, so it never waits for frames that wait for it.
type Group struct {
	pool *Pool

	mu       sync.Mutex
	members  map[*Member]bool
	batches  map[At]*batch
	frontier *At // the latest batch that got a frame; nil: none
}

// Member is one rank's connection to a group.
type Member struct {
	group *Group
	next  At // the batches from here on are still needed; guarded by group.mu
}

// batch is a batch in a frame of the group.
type batch struct {
	frame   Frame
	users   map[*Member]bool // members that need the frame or have it
	built   chan struct{}    // closed when the builder has ended
	isBuilt bool
}

// NewGroup returns a group without members and memory. frames, limit: as for NewPool. extra is the number of frames by
// which members may be apart, beyond the usual number.
func NewGroup(frames, extra uint32, limit int64) *Group {
	pool := NewPool(frames, limit)
	pool.extra, pool.shared = extra, true
	return &Group{pool: pool, members: map[*Member]bool{}, batches: map[At]*batch{}}
}

// Join adds a member whose first batch is at. The caller ends the membership with Leave.
func (g *Group) Join(at At) *Member {
	g.mu.Lock()
	defer g.mu.Unlock()
	m := &Member{group: g, next: at}
	g.members[m] = true
	for place, b := range g.batches {
		if !place.before(at) {
			b.users[m] = true
		}
	}
	return m
}

// Take returns the frame of a batch. mine: the caller builds the batch in it and then calls Built. Otherwise the batch
// is complete. Take blocks while another member builds it, or while no frame is free. need and room: as for
// Pool.Acquire. Errors: ErrPassed, ErrLimit, ErrMemory, and that of ctx.
func (m *Member) Take(ctx context.Context, at At, need, room int64) (f Frame, mine bool, err error) {
	for {
		f, mine, wait, err := m.group.take(m, at, need, max(need, room))
		if err != nil || wait == nil {
			return f, mine, err
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return Frame{}, false, ctx.Err()
		}
	}
}

// take returns a frame, or a channel that is closed when it is worth to try again.
func (g *Group) take(m *Member, at At, need, room int64) (Frame, bool, <-chan struct{}, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	m.next = at
	if b := g.batches[at]; b != nil {
		if !b.isBuilt {
			return Frame{}, false, b.built, nil
		}
		m.next = At{at.Step, at.Microbatch + 1}
		return b.frame, false, nil, nil
	}
	if g.frontier != nil && !g.frontier.before(at) {
		return Frame{}, false, nil, ErrPassed
	}
	f, came, err := g.pool.try(need, room)
	if err != nil || came != nil {
		return Frame{}, false, came, err
	}
	b := &batch{frame: f, users: map[*Member]bool{}, built: make(chan struct{})}
	for other := range g.members {
		if !at.before(other.next) {
			b.users[other] = true
		}
	}
	g.batches[at], g.frontier = b, &at
	m.next = At{at.Step, at.Microbatch + 1}
	return f, true, nil, nil
}

// Built ends the building of a batch by this member. After an error, the other members get ErrPassed.
func (m *Member) Built(at At, err error) error {
	g := m.group
	g.mu.Lock()
	defer g.mu.Unlock()
	b := g.batches[at]
	g.pool.Lend(b.frame)
	b.isBuilt = true
	close(b.built)
	if err != nil {
		clear(b.users)
	}
	return g.settle(at, b)
}

// Release takes back a frame from this member's trainer. The numbers may come from a client: if they name no frame that
// the member has, the error is ErrStale.
func (m *Member) Release(ring, frame uint32, generation uint64) error {
	g := m.group
	g.mu.Lock()
	defer g.mu.Unlock()
	for at, b := range g.batches {
		f := b.frame
		if f.Ring.number == ring && f.Number == frame && f.Generation == generation && b.users[m] && at.before(m.next) {
			delete(b.users, m)
			return g.settle(at, b)
		}
	}
	return fmt.Errorf("%w: frame %d of ring %d, generation %d", ErrStale, frame, ring, generation)
}

// Leave ends the membership. The caller calls Take and Built no more. The trainer's mapping stays valid.
func (m *Member) Leave() error {
	g := m.group
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.members, m)
	var errs []error
	for at, b := range maps.Clone(g.batches) {
		if b.users[m] {
			delete(b.users, m)
			errs = append(errs, g.settle(at, b))
		}
	}
	return errors.Join(errs...)
}

// settle frees the frame of a complete batch without users. The caller holds mu.
func (g *Group) settle(at At, b *batch) error {
	if !b.isBuilt || len(b.users) > 0 {
		return nil
	}
	delete(g.batches, at)
	return g.pool.Release(b.frame.Ring.number, b.frame.Number, b.frame.Generation)
}

// Close unmaps the group's memory. No member may be left.
func (g *Group) Close() error { return g.pool.Close() }
