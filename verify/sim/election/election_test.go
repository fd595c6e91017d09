package election

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"millrace"
	"millrace/internal/seam"
	"millrace/orchestrator/lease"
	"millrace/orchestrator/lease/leasetest"
)

// named is a journal that only has a name.
type named struct {
	mu   sync.Mutex
	name string
}

func (n *named) set(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.name = name
}

// ID implements lease.Standing.
func (n *named) ID() (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.name, nil
}

// Stand implements lease.Standing.
func (n *named) Stand() (string, error) { return n.ID() }

// Yield implements lease.Standing.
func (n *named) Yield() {}

func near(context.Context) error { return nil }

// TestContract: the model keeps the promises that the lease in etcd keeps.
func TestContract(t *testing.T) {
	leasetest.Contract(t, func(*testing.T) leasetest.Run {
		c := New()
		return func() *leasetest.Process {
			has := &named{}
			x := c.Candidate(Config{TTL: 2 * time.Second, Clock: seam.System{}, Journal: has, Ask: near, Answer: near})
			return &leasetest.Process{Leaser: x, Has: has.set, Journal: func(...lease.Plan) {}, Depose: c.Depose,
				Exit: func() {}}
		}
	})
}

// virtual is a candidate in virtual time.
func virtual(paused *atomic.Bool, way func(context.Context) error) Config {
	return Config{TTL: 5 * time.Second, Clock: &pausing{paused}, Journal: &named{}, Ask: way, Answer: way}
}

// TestAHolderThatIsPausedGoesOn: it believes in its lease while another process has the next one. A request of before
// its pause arrives later and changes nothing.
func TestAHolderThatIsPausedGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New()
		var paused atomic.Bool
		reach := func(ctx context.Context) error {
			for paused.Load() {
				select {
				case <-time.After(100 * time.Millisecond):
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return nil
		}
		first := c.Candidate(virtual(&paused, reach))
		a, _, err := first.Acquire(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		paused.Store(true)
		second := c.Candidate(virtual(new(atomic.Bool), near))
		began := time.Now()
		b, _, err := second.Acquire(t.Context(), a.Term())
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 3700*time.Millisecond || took > 4700*time.Millisecond {
			t.Errorf("the next holder came after %v", took)
		}
		if err := b.Commit(t.Context(), []lease.Plan{{Attempt: 1, Step: 1}}); err != nil {
			t.Error(err)
		}
		paused.Store(false)
		late := []lease.Plan{{Attempt: 1, Step: 1, Content: millrace.Digest{9}}}
		if err := a.Commit(t.Context(), late); !errors.Is(err, millrace.ErrFenced) {
			t.Errorf("the paused holder commits: %v", err)
		}
		a.Release()
		if err := b.Commit(t.Context(), nil); err != nil {
			t.Errorf("after the release of an earlier lease: %v", err)
		}
		b.Release()
	})
}

// pausing is a clock in virtual time. Its timers ring after a pause.
type pausing struct{ paused *atomic.Bool }

// Now implements seam.Clock.
func (p *pausing) Now() time.Time { return time.Now() }

// Boottime implements seam.Clock.
func (p *pausing) Boottime() int64 { return time.Now().UnixNano() }

// After implements seam.Clock.
func (p *pausing) After(d time.Duration) <-chan time.Time {
	out := make(chan time.Time, 1)
	var ring func()
	ring = func() {
		if p.paused.Load() {
			time.AfterFunc(100*time.Millisecond, ring)
			return
		}
		out <- time.Now()
	}
	time.AfterFunc(d, ring)
	return out
}

// TestOutages: a transaction may take place although its answer is lost, and a second one finds its effect. While the
// cluster is down, nothing is granted, and the lease ends with its time.
func TestOutages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New()
		var passes atomic.Int64 // messages that still pass; negative: all
		passes.Store(-1)
		reach := func(ctx context.Context) error {
			if passes.Load() != 0 {
				passes.Add(-1)
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}
		x := c.Candidate(virtual(new(atomic.Bool), reach))
		l, held, err := x.Acquire(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		passes.Store(1)
		time.AfterFunc(2*time.Second, func() { passes.Store(-1) })
		plans := []lease.Plan{{Attempt: 1, Step: 1, Content: millrace.Digest{1}}}
		if err := l.Commit(t.Context(), plans); err != nil {
			t.Errorf("after a lost answer: %v", err)
		}
		repair := c.Fail()
		began := time.Now()
		if <-held.Done(); time.Since(began) > 5*time.Second {
			t.Errorf("the holder stopped after %v", time.Since(began))
		}
		if err := l.Commit(t.Context(), nil); !errors.Is(err, millrace.ErrFenced) {
			t.Errorf("a commit after the deadline: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		y := c.Candidate(virtual(new(atomic.Bool), near))
		if _, _, err := y.Acquire(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("granted without a quorum: %v", err)
		}
		repair()
		l.Release()
		next, _, err := y.Acquire(t.Context(), l.Term())
		if err != nil {
			t.Fatal(err)
		}
		plans[0].Content[0]++
		if err := next.Commit(t.Context(), plans); !errors.Is(err, millrace.ErrMismatch) {
			t.Errorf("another digest of a step: %v", err)
		}
		next.Release()
	})
}
