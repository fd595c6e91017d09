package sidecar

import (
	"context"
	"sync"
	"time"

	"millrace"
)

// forward sends one connection's commits and saved checkpoints upstream, in order, without delaying the connection.
// While the orchestrator is away, it keeps the newest commit alone: a later step includes the earlier ones.
type forward struct {
	upstream Upstream
	rank     millrace.Rank
	attempt  millrace.Attempt

	mu      sync.Mutex
	commits *millrace.Step
	saves   *millrace.Step
	closed  bool
	wake    chan struct{}
}

// carryWithin limits the time of the last commits after the sidecar was asked to leave.
const carryWithin = time.Second

// lingering returns a context that ends carryWithin after ctx, or when the caller calls end. The caller must call it.
func lingering(ctx context.Context) (lasting context.Context, end func()) {
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	forget := context.AfterFunc(ctx, func() {
		last, done := context.WithTimeout(lasting, carryWithin)
		defer done()
		<-last.Done()
		cancel()
	})
	return lasting, func() { forget(); cancel() }
}

func newForward(up Upstream, rank millrace.Rank) *forward {
	return &forward{upstream: up, rank: rank, wake: make(chan struct{}, 1)}
}

func (f *forward) commit(attempt millrace.Attempt, step millrace.Step) {
	f.change(func() { f.attempt, f.commits = attempt, &step })
}
func (f *forward) save(attempt millrace.Attempt, step millrace.Step) {
	f.change(func() { f.attempt, f.saves = attempt, &step })
}

// finish lets carry return after it has sent everything.
func (f *forward) finish() { f.change(func() { f.closed = true }) }

func (f *forward) change(set func()) {
	f.mu.Lock()
	set()
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default: // a wake-up is pending already
	}
}

// send sends commits and saves until finish is called or ctx ends. It calls done for every commit that upstream has
// noted.
func (f *forward) send(ctx context.Context, done func(attempt millrace.Attempt, below millrace.Step)) error {
	for {
		f.mu.Lock()
		commits, saves, closed, attempt := f.commits, f.saves, f.closed, f.attempt
		f.commits, f.saves = nil, nil
		f.mu.Unlock()
		if commits != nil {
			if err := f.upstream.Commit(ctx, f.rank, attempt, *commits); err != nil {
				return err
			}
			done(attempt, *commits+1)
		}
		if saves != nil {
			if err := f.upstream.CheckpointSaved(ctx, f.rank, attempt, *saves); err != nil {
				return err
			}
		}
		if commits != nil || saves != nil {
			continue
		}
		if closed {
			return nil
		}
		select {
		case <-f.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
