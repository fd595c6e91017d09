package link

import (
	"context"
	"sync"
)

// A condition is the lock of one type's state, with a way to wait for a change of that state.
//
// Locks nest in one direction: uplink, connections and watch.Watcher may be called with another lock held. Beside
// these, no call holds two locks.
type condition struct {
	sync.Mutex
	changed chan struct{} // closed and replaced at each change
}

func newCondition() condition { return condition{changed: make(chan struct{})} }

// update changes the state under the lock and wakes all waiting calls.
func (c *condition) update(change func()) {
	c.Lock()
	defer c.Unlock()
	change()
	c.wake()
}

// wake wakes all waiting calls. The caller holds the lock.
func (c *condition) wake() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// until blocks until isReached returns true or ctx ends. It calls isReached with the lock held.
func (c *condition) until(ctx context.Context, isReached func() bool) error {
	for {
		c.Lock()
		reached, changed := isReached(), c.changed
		c.Unlock()
		if reached {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
