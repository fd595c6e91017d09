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

// grace is how long a new client waits for the claim's holder to go. A client that goes on waits longer: a refusal would end its
// training on behalf of a stranger that is about to be turned away.
const (
	grace       = 250 * time.Millisecond
	graceToGoOn = 2 * time.Second
)

// claim is a trainer's hold on a rank's socket. One session holds it at a time, and only the holder is served.
type claim struct {
	number int // in the socket's name
	rank   millrace.Rank

	mu      sync.Mutex
	holder  *session
	leaving bool          // the holder's trainer is gone; its commits may still be on their way to the orchestrator
	changed chan struct{} // closed at the next change
}

func newClaim(number int, rank millrace.Rank) *claim {
	return &claim{number: number, rank: rank, changed: make(chan struct{})}
}

// take waits for the claim while its holder is leaving or has hung up, and refuses while the holder lives. A client that goes on had
// the claim before: a holder that was given no batch yet makes room for it. If ctx ends, take returns its cause.
func (s *claim) take(ctx context.Context, by *session, goesOn bool) error {
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
			if holder.hasHungUp() { // a busy machine has not noticed it yet
				patience.Reset(grace)
				continue
			}
			return fmt.Errorf("rank %d is being served to process %d: one trainer process a rank; close that one first", s.rank, holder.peer.pid)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// settle waits while the holder's trainer is gone and the orchestrator has not heard of it. The orchestrator then learns of events in
// the order in which they happened.
func (s *claim) settle(ctx context.Context) {
	for {
		s.mu.Lock()
		holder, leaving, changed := s.holder, s.leaving, s.changed
		s.mu.Unlock()
		if holder == nil || !leaving && !holder.hasHungUp() {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// leave notes that the trainer of a session is gone for good.
func (s *claim) leave(by *session) {
	s.change(func() { s.leaving = s.leaving || s.holder == by })
}

// release ends the holder's claim.
func (s *claim) release() { s.change(func() { s.holder = nil }) }

func (s *claim) change(set func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	set()
	close(s.changed)
	s.changed = make(chan struct{})
}
