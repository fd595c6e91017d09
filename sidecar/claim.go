package sidecar

import (
	"context"
	"fmt"
	"sync"
	"time"

	"millrace"
)

// anyRank in HELLO means that the client does not know the number in its socket's name.
const anyRank = ^uint32(0)

// grace limits a new client's wait for the claim's holder to leave. A client that continues waits for graceToGoOn. A
// refusal would end its training, although the holder may be a new client that is itself about to be refused.
const (
	grace       = 250 * time.Millisecond
	graceToGoOn = 2 * time.Second
)

// claim is a trainer's hold on a rank's socket. One session holds it at a time, and only the holder is served.
type claim struct {
	number int // among the ranks of this host
	rank   millrace.Rank

	mu      sync.Mutex
	holder  *session
	leaving bool          // the holder's trainer is gone; its commits may still be on their way to the orchestrator
	changed chan struct{} // closed and replaced at each change
}

func newClaim(number int, rank millrace.Rank) *claim {
	return &claim{number: number, rank: rank, changed: make(chan struct{})}
}

// take gets the claim for a session. It waits while the holder is leaving or has hung up. It returns an error if the
// holder still lives after the grace. A client that continues held the claim before: a holder that has not begun is
// refused in its favour, unless the client is gone by now: the holder may be its successor. If ctx ends, take returns
// its cause.
func (c *claim) take(ctx context.Context, by *session, continues bool) error {
	long := grace
	if continues {
		long = graceToGoOn
	}
	patience := time.NewTimer(long)
	defer patience.Stop()
	var asked *session
	for {
		c.mu.Lock()
		if c.holder == nil {
			c.holder, c.leaving = by, false
			c.mu.Unlock()
			return nil
		}
		holder, leaving, changed := c.holder, c.leaving, c.changed
		c.mu.Unlock()
		if continues && holder != asked && !by.isGone() {
			asked = holder
			holder.post(outranked{
				fmt.Errorf("rank %d continues in process %d: one trainer process a rank; close that one first",
					c.rank, by.peer.pid),
			})
		}
		expired := patience.C
		if leaving {
			expired = nil
		}
		select {
		case <-changed:
		case <-expired:
			if holder.isGone() { // this process has not noticed it yet, for example on a busy machine
				patience.Reset(grace)
				continue
			}
			return fmt.Errorf("rank %d is being served to process %d: one trainer process a rank; close that one first",
				c.rank, holder.peer.pid)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// settle returns at once if the holder's trainer lives. If the trainer is gone, settle waits until its departure was
// reported upstream. The orchestrator then receives events in the order in which they happened.
func (c *claim) settle(ctx context.Context) {
	for {
		c.mu.Lock()
		holder, leaving, changed := c.holder, c.leaving, c.changed
		c.mu.Unlock()
		if holder == nil || !leaving && !holder.isGone() {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// noteLeaving notes that the trainer of a session is gone and will not return on this connection.
func (c *claim) noteLeaving(by *session) {
	c.change(func() { c.leaving = c.leaving || c.holder == by })
}

// release ends the holder's claim.
func (c *claim) release() { c.change(func() { c.holder = nil }) }

func (c *claim) change(set func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	set()
	close(c.changed)
	c.changed = make(chan struct{})
}
