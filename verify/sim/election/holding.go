package election

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"millrace"
	"millrace/orchestrator/lease"
)

// holding is the lease of one candidate. The holder believes in it until its own deadline, or until the cluster says
// otherwise.
type holding struct {
	x        *Candidate
	key      *key
	ctx      context.Context
	end      context.CancelCauseFunc
	deadline atomic.Int64 // boot time in nanoseconds, at which the holder stops by itself
	renewals sync.WaitGroup
	released sync.Once
}

var _ lease.Keeper = (*holding)(nil)

// Term implements lease.Lease.
func (h *holding) Term() millrace.Term { return millrace.Term(h.key.revision) }

func (h *holding) hold(ctx context.Context) {
	h.ctx, h.end = context.WithCancelCause(ctx)
	h.renewals.Go(h.renewAll)
}

// extend moves the deadline after a renewal that was sent at a boot time.
func (h *holding) extend(sent int64) { h.deadline.Store(sent + int64(h.x.cfg.TTL-h.x.cfg.margin())) }

func (h *holding) left() time.Duration {
	return time.Duration(h.deadline.Load() - h.x.cfg.Clock.Boottime())
}

func (h *holding) lost(why string) error {
	return millrace.Errorf(millrace.ErrFenced, "the lease of term %d has ended: %s", h.Term(), why)
}

// check ends the lease at its deadline, and returns an error if it has ended.
func (h *holding) check() error {
	if h.left() <= 0 {
		h.end(h.lost("it was not renewed"))
	}
	switch cause := context.Cause(h.ctx); {
	case cause == nil:
		return nil
	case errors.Is(cause, millrace.ErrFenced):
		return cause
	default:
		return h.lost(cause.Error())
	}
}

// renewAll renews the lease until it ends.
func (h *holding) renewAll() {
	wait := h.x.cfg.every()
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-h.x.cfg.Clock.After(min(wait, max(0, h.left()))):
		}
		if h.check() != nil {
			return
		}
		sent, holds := h.x.cfg.Clock.Boottime(), false
		err := h.x.call(h.ctx, min(h.x.cfg.call(), h.left()), func() {
			if holds = h.x.c.held == h.key; holds {
				h.key.ends.Reset(h.x.cfg.over())
			}
		})
		switch {
		case err != nil:
			wait = retryDelay
		case !holds:
			h.end(h.lost("its election key was removed"))
			return
		default:
			h.extend(sent)
			wait = h.x.cfg.every()
		}
	}
}

// persist repeats a transaction until its answer is certain, the lease ends, or ctx does. The transaction takes place
// only under the holder's key.
func (h *holding) persist(ctx context.Context, transact func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.ctx, cancel)()
	for {
		if err := h.check(); err != nil {
			return err
		}
		holds, answer := false, error(nil)
		err := h.x.call(ctx, min(h.x.cfg.call(), h.left()), func() {
			if holds = h.x.c.held == h.key; holds {
				answer = transact()
			}
		})
		switch {
		case err == nil && !holds:
			h.end(h.lost("another process may have the next one"))
			return h.check()
		case err == nil && answer != nil:
			return answer
		case err == nil, h.left() <= 0, h.ctx.Err() != nil:
			return h.check() // the answer may have come after the deadline
		case ctx.Err() != nil:
			return ctx.Err()
		}
		select {
		case <-ctx.Done():
		case <-h.x.cfg.Clock.After(retryDelay):
		}
	}
}

// Commit implements lease.Lease.
func (h *holding) Commit(ctx context.Context, plans []lease.Plan) error {
	return h.persist(ctx, func() error {
		for _, p := range plans {
			was, ok := h.x.c.plans[step{p.Attempt, p.Step}]
			if now := (digests{p.Content, p.Placement}); ok && was != now {
				return millrace.Errorf(millrace.ErrMismatch, "step %d of attempt %d has digests %v, not %v", p.Step,
					p.Attempt, was, now)
			}
		}
		for _, p := range plans {
			h.x.c.plans[step{p.Attempt, p.Step}] = digests{p.Content, p.Placement}
		}
		return nil
	})
}

// List implements lease.Keeper.
func (h *holding) List(ctx context.Context, journals []lease.Journal) error {
	return h.persist(ctx, func() error {
		h.x.c.revision++
		h.x.c.journals, h.x.c.listed = slices.Clone(journals), h.x.c.revision
		h.x.c.change()
		return nil
	})
}

// revoke removes the key if it is still the holder's.
func (h *holding) revoke() {
	_ = h.x.call(context.Background(), farewell, func() { // else it ends with its time
		if h.key != nil && h.x.c.held == h.key {
			h.x.c.free()
		}
	})
}

// Release implements lease.Lease.
func (h *holding) Release() {
	h.released.Do(func() {
		h.end(h.lost("it was released"))
		h.renewals.Wait()
		h.revoke()
	})
}
