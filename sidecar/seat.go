package sidecar

import (
	"context"
	"fmt"
	"sync"
	"time"

	"millrace"
)

// anyRank in HELLO: the client does not know the number in its socket's name.
const anyRank = ^uint32(0)

// grace is how long a newcomer waits for the one before it to go; who goes on waits longer, since a refusal would end its training for
// a stranger that is about to be turned away.
const (
	grace       = 250 * time.Millisecond
	graceToGoOn = 2 * time.Second
)

// seat is the one place of a rank: who holds it is served.
type seat struct {
	number int // in the socket's name
	rank   millrace.Rank

	mu      sync.Mutex
	holder  *session
	leaving bool          // the holder is known to be gone; its commits may still be on their way up
	changed chan struct{} // closed at the next change
}

func newSeat(number int, rank millrace.Rank) *seat {
	return &seat{number: number, rank: rank, changed: make(chan struct{})}
}

// take waits for the seat while its holder is leaving or has hung up, and refuses while the holder lives. Whoever goes on had the seat
// before: a holder that nothing was given to yet makes room. Where ctx ends, its cause is returned.
func (s *seat) take(ctx context.Context, by *session, goesOn bool) error {
	long := grace
	if goesOn {
		long = graceToGoOn
	}
	patience := time.NewTimer(long)
	defer patience.Stop()
	var asked *session
	for {
		s.mu.Lock()
		if s.holder == nil {
			s.holder, s.leaving = by, false
			s.mu.Unlock()
			return nil
		}
		holder, leaving, changed := s.holder, s.leaving, s.changed
		s.mu.Unlock()
		if goesOn && holder != asked {
			asked = holder
			holder.post(outranked{fmt.Errorf("rank %d goes on in process %d: one trainer process a rank; close that one first", s.rank, by.peer.pid)})
		}
		expired := patience.C
		if leaving {
			expired = nil
		}
		select {
		case <-changed:
		case <-expired:
			if holder.hungUp() { // a busy machine has not come to noticing it
				patience.Reset(grace)
				continue
			}
			return fmt.Errorf("rank %d is being served to process %d: one trainer process a rank; close that one first", s.rank, holder.peer.pid)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// settle waits while the holder is gone and that is not yet known upstream, so that what happened first is also said first.
func (s *seat) settle(ctx context.Context) {
	for {
		s.mu.Lock()
		holder, leaving, changed := s.holder, s.leaving, s.changed
		s.mu.Unlock()
		if holder == nil || !leaving && !holder.hungUp() {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// leave says that the holder is gone for good.
func (s *seat) leave(by *session) {
	s.change(func() { s.leaving = s.leaving || s.holder == by })
}

func (s *seat) give() { s.change(func() { s.holder = nil }) }

func (s *seat) change(set func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	set()
	close(s.changed)
	s.changed = make(chan struct{})
}
