package tier

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"millrace"
	"millrace/sidecar"
)

// key names a step.
type key struct {
	attempt millrace.Attempt
	step    millrace.Step
}

func keyOf(p *millrace.Plan) key { return key{p.Attempt, p.Step} }

func (k key) compare(other key) int {
	return cmp.Or(cmp.Compare(k.attempt, other.attempt), cmp.Compare(k.step, other.step))
}

// fetching fetches tokens from the loaders.
type fetching func(context.Context, *millrace.Plan, []millrace.Rank) (sidecar.Payload, error)

// shelf has the steps that this sidecar fetches for its own ranks and for peers. The first user of a step starts its
// fetch. A step stays until this host and each peer had it, or until the room for steps without a user is used up.
type shelf struct {
	room  int64 // bytes of steps without a user, at most
	fetch fetching

	mu     sync.Mutex
	items  map[key]*item
	idle   int64 // bytes of items without a user
	passed *key  // the highest step that has left; nil: none has
	closed bool
	loads  sync.WaitGroup
}

// item is a step on the shelf.
type item struct {
	at     key
	plan   *millrace.Plan
	ranks  []millrace.Rank
	ready  chan struct{} // closed when payload, bytes and err are set
	cancel context.CancelFunc

	payload sidecar.Payload
	bytes   int64
	err     error

	users int                   // guarded by shelf.mu, as is due
	due   map[millrace.Rank]int // peers that have yet to take the tokens
	isOwn bool                  // this host's ranks have come for it
}

func newShelf(room int64, fetch fetching) *shelf {
	return &shelf{room: room, fetch: fetch, items: map[key]*item{}}
}

// take returns a step for this host's ranks, and starts to fetch them if it is not there. The caller gives it back.
// peers has the number of hosts that will ask for each rank.
func (s *shelf) take(plan *millrace.Plan, ranks []millrace.Rank, peers map[millrace.Rank]int) *item {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.use(plan, ranks, peers)
	x.isOwn = true
	return x
}

// use returns a step with one more user. The caller holds mu.
func (s *shelf) use(plan *millrace.Plan, ranks []millrace.Rank, peers map[millrace.Rank]int) *item {
	at := keyOf(plan)
	x := s.items[at]
	if x == nil {
		ctx, cancel := context.WithCancel(context.Background())
		x = &item{at: at, plan: plan, ranks: ranks, ready: make(chan struct{}), cancel: cancel, due: maps.Clone(peers)}
		if s.items[at] = x; s.closed {
			cancel()
			x.err = errEnded
			close(x.ready)
		} else {
			s.loads.Go(func() { s.load(ctx, x) })
		}
	} else if x.users == 0 {
		s.idle -= x.bytes
	}
	x.users++
	return x
}

// join is take for a peer: it returns nil for a step that this sidecar has passed, and for one that has no room.
func (s *shelf) join(plan *millrace.Plan, ranks []millrace.Rank, peers map[millrace.Rank]int) *item {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := keyOf(plan)
	if s.items[at] == nil && (s.passed != nil && at.compare(*s.passed) <= 0 || s.idle > s.room || s.closed) {
		return nil
	}
	return s.use(plan, ranks, peers)
}

// find returns the plan and the ranks of a step that is on the shelf; nil: it is not.
func (s *shelf) find(at key) (*millrace.Plan, []millrace.Rank) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.items[at]; x != nil {
		return x.plan, x.ranks
	}
	return nil, nil
}

func (s *shelf) load(ctx context.Context, x *item) {
	defer x.cancel()
	x.payload, x.err = s.fetch(ctx, x.plan, x.ranks)
	if x.err == nil {
		x.bytes = x.payload.Bytes()
	}
	s.mu.Lock()
	isGone := s.items[x.at] != x
	close(x.ready)
	s.mu.Unlock()
	if isGone && x.payload != nil {
		x.payload.Release() // its users are gone
	}
}

// give ends the use of a step.
func (s *shelf) give(x *item) {
	s.mu.Lock()
	var leaving []*item
	if x.users--; x.users == 0 {
		if x.isLoaded() {
			s.idle += x.bytes
		} else {
			x.cancel()
		}
		leaving = s.clear(x)
	}
	s.mu.Unlock()
	release(leaving)
}

// took notes that a peer has the tokens of ranks.
func (s *shelf) took(x *item, ranks []millrace.Rank) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range ranks {
		if x.due[r]--; x.due[r] <= 0 {
			delete(x.due, r)
		}
	}
}

// clear removes the step that no longer has a user unless peers need it, and then the oldest steps beyond the room. The
// caller holds mu, and releases the steps after it has unlocked mu.
func (s *shelf) clear(newest *item) (leaving []*item) {
	remove := func(x *item) {
		delete(s.items, x.at)
		if x.isOwn && x.isLoaded() && (s.passed == nil || s.passed.compare(x.at) < 0) {
			s.passed = &x.at
		}
		if x.isLoaded() {
			s.idle -= x.bytes
			leaving = append(leaving, x)
		}
	}
	if s.closed || !newest.isLoaded() || newest.isOwn && len(newest.due) == 0 {
		remove(newest)
	}
	for _, at := range slices.SortedFunc(maps.Keys(s.items), key.compare) {
		if x := s.items[at]; x.users == 0 && (s.idle > s.room || at.attempt < newest.at.attempt) {
			remove(x)
		}
	}
	return leaving
}

func release(items []*item) {
	for _, x := range items {
		x.payload.Release()
	}
}

// close ends all fetches and releases the steps without a user. A step with a user is released when it is given back.
func (s *shelf) close() {
	s.mu.Lock()
	s.closed = true
	var leaving []*item
	for at, x := range s.items {
		x.cancel()
		if x.users == 0 {
			delete(s.items, at)
			leaving = append(leaving, x)
		}
	}
	s.mu.Unlock()
	release(leaving)
	s.loads.Wait()
}

// isLoaded reports whether the payload is here.
func (x *item) isLoaded() bool {
	select {
	case <-x.ready:
		return x.err == nil
	default:
		return false
	}
}

// includes reports whether a list has all of some ranks.
func includes(all, some []millrace.Rank) bool {
	return !slices.ContainsFunc(some, func(r millrace.Rank) bool { return !slices.Contains(all, r) })
}

var errEnded = errors.New("fetch from the loaders: this sidecar is leaving")

// wait blocks until the tokens are here.
func (x *item) wait(ctx context.Context) error {
	select {
	case <-x.ready:
		return x.err
	case <-ctx.Done():
		return ctx.Err()
	}
}
