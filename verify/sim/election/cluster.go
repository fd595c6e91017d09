// Package election is a model of the run's keys in etcd, with the promises of etcd: one holder of the election key at a
// time, revisions that only grow, transactions that are whole, and a key that ends with its lease. Answers may be late
// or lost. A candidate keeps the lease by the same rules as lease.Etcd.
package election

import (
	"context"
	"sync"
	"time"

	"millrace"
	"millrace/orchestrator/lease"
)

// Cluster has the keys of one run.
type Cluster struct {
	mu       sync.Mutex
	revision int64
	held     *key // the election key; nil: there is none
	journals []lease.Journal
	listed   int64 // revision of the list's newest change; 0: there is no list
	plans    map[step]digests
	changed  chan struct{} // closed and replaced when the key or the list changes
	down     int           // outages now
	slow     time.Duration // of each message, beside the network
}

// key is the election key. Its revision is the term of its holder.
type key struct {
	revision      int64
	line, address string
	ends          *time.Timer // the end of its lease in etcd
}

type step struct {
	attempt millrace.Attempt
	step    millrace.Step
}

type digests struct{ content, placement millrace.Digest }

// New returns an empty cluster.
func New() *Cluster { return &Cluster{plans: map[step]digests{}, changed: make(chan struct{})} }

// Leader returns the address of the holder, "" if there is none.
func (c *Cluster) Leader() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil {
		return ""
	}
	return c.held.address
}

// Journals returns the number of the listed journals.
func (c *Cluster) Journals() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.journals)
}

// Depose removes the election key, as an administrator does. Its holder is not notified.
func (c *Cluster) Depose() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.free()
}

// Fail plays the loss of the quorum until repair is called. The leases end with their time.
func (c *Cluster) Fail() (repair func()) {
	count := func(by int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.down += by
		c.change()
	}
	count(1)
	return func() { count(-1) }
}

// Slow delays each message to and from the cluster.
func (c *Cluster) Slow(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slow = by
}

// free removes the election key. The cluster is locked.
func (c *Cluster) free() {
	if c.held != nil {
		c.held.ends.Stop()
		c.held = nil
		c.revision++
		c.change()
	}
}

// change wakes those who wait. The cluster is locked.
func (c *Cluster) change() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// expire ends a key whose lease was not renewed.
func (c *Cluster) expire(k *key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == k {
		c.free()
	}
}

// act waits until the cluster has a quorum, and performs a transaction.
func (c *Cluster) act(ctx context.Context, transact func()) error {
	for {
		c.mu.Lock()
		if c.down == 0 {
			defer c.mu.Unlock()
			transact()
			return nil
		}
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// delay returns the time of one message.
func (c *Cluster) delay() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.slow
}
