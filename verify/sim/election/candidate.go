package election

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"millrace"
	"millrace/internal/seam"
	"millrace/orchestrator/lease"
)

// Config describes a candidate.
type Config struct {
	Line    string // see lease.EtcdConfig
	Address string // of the process if it is elected
	TTL     time.Duration
	Clock   seam.Clock
	Journal lease.Standing
	// Ask blocks while no message passes from the process to the cluster, and Answer while none passes back. They fail
	// when ctx ends.
	Ask, Answer func(ctx context.Context) error
}

// Times of the lease, as lease.Etcd has them.
func (c Config) margin() time.Duration { return c.TTL * 3 / 10 }
func (c Config) every() time.Duration  { return c.TTL / 6 }
func (c Config) call() time.Duration   { return c.TTL / 5 }

// over is the time from the last renewal to the end of the key, if a candidate waits: see lease.Etcd.
func (c Config) over() time.Duration { return c.TTL - c.margin() + 200*time.Millisecond }

const (
	retryDelay = 200 * time.Millisecond
	farewell   = time.Second // the longest that Release waits for the cluster
)

// Candidate is one process that wants the lease.
type Candidate struct {
	cfg Config
	c   *Cluster
}

// Candidate returns a candidate. It starts nothing.
func (c *Cluster) Candidate(cfg Config) *Candidate { return &Candidate{cfg: cfg, c: c} }

var (
	_ lease.Leaser  = (*Candidate)(nil)
	_ lease.Elector = (*Candidate)(nil)
)

// call is one transaction: a message, its effect in the cluster, and the answer. After an error the effect may have
// taken place.
func (x *Candidate) call(ctx context.Context, within time.Duration, transact func()) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	pass := func(way func(context.Context) error) error {
		if err := way(ctx); err != nil {
			return err
		}
		select {
		case <-time.After(x.c.delay()):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := pass(x.cfg.Ask); err != nil {
		return err
	}
	if err := x.c.act(ctx, transact); err != nil {
		return err
	}
	return pass(x.cfg.Answer)
}

// Leader returns the address of the leader as this process reads it, "" if there is none.
func (x *Candidate) Leader(ctx context.Context) (address string, err error) {
	err = x.call(ctx, x.cfg.call(), func() {
		if x.c.held != nil {
			address = x.c.held.address
		}
	})
	return address, err
}

// Acquire implements lease.Leaser.
func (x *Candidate) Acquire(ctx context.Context, above millrace.Term) (lease.Lease, context.Context, error) {
	g, err := x.Elect(ctx)
	if err != nil {
		return nil, nil, err
	}
	return g.Acquire(ctx, above)
}

// Elect implements lease.Elector.
func (x *Candidate) Elect(ctx context.Context) (*lease.Grant, error) {
	for {
		h, err := x.campaign(ctx)
		if err == nil {
			return lease.NewGrant(h, h.ctx, "of the simulation"), nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("acquire the lease from the model: %w", ctx.Err())
		}
		select {
		case <-ctx.Done():
		case <-x.cfg.Clock.After(retryDelay):
		}
	}
}

// errTaken: another candidate was faster, or the list has changed.
var errTaken = errors.New("another process has it")

// campaign waits until the lease is free and this candidate's journal is listed, and tries to get it.
func (x *Candidate) campaign(ctx context.Context) (_ *holding, err error) {
	revision, err := x.awaitTurn(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			x.cfg.Journal.Yield()
		}
	}()
	id, err := x.cfg.Journal.Stand()
	if err != nil {
		return nil, err
	}
	h := &holding{x: x}
	h.extend(x.cfg.Clock.Boottime())
	err = x.call(ctx, x.cfg.call(), func() {
		if x.c.held == nil && x.c.listed == revision && x.c.admits(id) {
			x.c.revision++
			k := &key{revision: x.c.revision, line: x.cfg.Line, address: x.cfg.Address}
			k.ends = time.AfterFunc(x.cfg.over(), func() { x.c.expire(k) })
			x.c.held, h.key = k, k
			x.c.change()
		}
	})
	switch {
	case err != nil:
	case h.key == nil:
		err = errTaken
	case h.left() <= 0:
		err = errors.New("the answer came too late")
	}
	if err != nil {
		h.revoke()
		return nil, err
	}
	h.hold(ctx)
	return h, nil
}

// admits reports whether a journal may be elected. The cluster is locked.
func (c *Cluster) admits(id string) bool {
	isIt := func(j lease.Journal) bool { return id != "" && j.ID == id }
	return c.listed == 0 || slices.ContainsFunc(c.journals, isIt)
}

// awaitTurn blocks until the lease is free and the candidate may have it, and returns the revision of the list. It
// ends the lease of a dead predecessor.
func (x *Candidate) awaitTurn(ctx context.Context) (listed int64, err error) {
	for {
		id, err := x.cfg.Journal.ID()
		if err != nil {
			return 0, err
		}
		var may bool
		var changed chan struct{}
		err = x.call(ctx, x.cfg.call(), func() {
			if x.c.held != nil && x.cfg.Line != "" && x.c.held.line == x.cfg.Line {
				x.c.free()
			}
			may, listed, changed = x.c.held == nil && x.c.admits(id), x.c.listed, x.c.changed
		})
		if err != nil || may {
			return listed, err
		}
		select {
		case <-changed: // the notice comes as late as a message does
		case <-x.cfg.Clock.After(10 * time.Second):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}
