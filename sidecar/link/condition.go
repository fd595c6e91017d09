package link

import (
	"context"
	"sync"
)

// A condition is the lock of one concern's state, together with a way to wait for a change of that state.
//
// Locks nest in one direction: a concern may call uplink, connections and watcher with its lock held. Of the rest, only
// rows.missing holds two: that of the masks and its own.
type condition struct {
	sync.Mutex
	changed chan struct{} // closed and replaced at each change
}

func newCondition() condition { return condition{changed: make(chan struct{})} }

// update changes the state under the lock and wakes everybody who waits.
func (c *condition) update(change func()) {
	c.Lock()
	defer c.Unlock()
	change()
	c.wake()
}

// wake wakes everybody who waits. The caller holds the lock.
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
