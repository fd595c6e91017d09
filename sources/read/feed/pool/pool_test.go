package pool

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"millrace/sources/read/budget"
	"millrace/sources/read/feed/decode"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// step is a Feed that is a function.
type step func()

func (s step) Step(*decode.Decoder) { s() }

func newPool(size int) *Pool {
	return New(size, nil, func(large *budget.Large) *decode.Decoder { return decode.New(func() {}, nil, large) })
}

// start runs a pool until the test ends.
func start(t *testing.T, p *Pool) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = p.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

// TestOrder: the class decides, then the lag, then the time of the offer.
func TestOrder(t *testing.T) {
	p := newPool(1)
	var mu sync.Mutex
	var got []string
	all := make(chan struct{}, 8)
	join := func(name string) *Member {
		return p.Join(step(func() {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, name)
			all <- struct{}{}
		}))
	}
	join("ahead").Offer(Urgency{Class: Ahead, Lag: MaxLag})
	join("begun").Offer(Urgency{Class: Begun})
	join("wanted, near").Offer(Urgency{Class: Wanted, Lag: 1})
	join("wanted, far").Offer(Urgency{Class: Wanted, Lag: 9})
	join("wanted, far, later").Offer(Urgency{Class: Wanted, Lag: 9})
	raised := join("requested")
	raised.Offer(Urgency{Class: Ahead})
	raised.Offer(Urgency{Class: Requested})
	start(t, p)
	for range 6 {
		<-all
	}
	want := []string{"requested", "wanted, far", "wanted, far, later", "wanted, near", "begun", "ahead"}
	if !slices.Equal(got, want) {
		t.Errorf("stepped %q, want %q", got, want)
	}
}

// TestOffersAreNotLost: a feed that is offered during its step is stepped again, and a thousand feeds need no more
// goroutines than one.
func TestOffersAreNotLost(t *testing.T) {
	p := newPool(4)
	start(t, p)
	before := runtime.NumGoroutine()
	const feeds, rounds = 1000, 20
	var group sync.WaitGroup
	group.Add(feeds)
	members := make([]*Member, feeds)
	for i := range members {
		var mu sync.Mutex
		n := 0
		members[i] = p.Join(step(func() {
			mu.Lock()
			defer mu.Unlock()
			if n++; n == rounds {
				group.Done()
			} else if n < rounds {
				members[i].Offer(Urgency{Class: Ahead})
			}
		}))
	}
	for _, m := range members {
		m.Offer(Urgency{Class: Wanted})
	}
	if now := runtime.NumGoroutine(); now > before+p.size+1 { // Run may not have begun before
		t.Errorf("%d goroutines with %d feeds, %d with none", now, feeds, before)
	}
	group.Wait()
}

// TestLeaveWaits: after Leave, no decoder is in the feed and none comes.
func TestLeaveWaits(t *testing.T) {
	p := newPool(2)
	start(t, p)
	inside, release := make(chan struct{}), make(chan struct{})
	m := p.Join(step(func() {
		inside <- struct{}{}
		<-release
	}))
	m.Offer(Urgency{})
	<-inside
	left := make(chan struct{})
	go func() {
		m.Leave()
		close(left)
	}()
	select {
	case <-left:
		t.Error("a decoder is still in the feed")
	case <-time.After(20 * time.Millisecond):
	}
	close(release)
	<-left
	m.Offer(Urgency{})
	select {
	case <-inside:
		t.Error("a feed that left was stepped")
	case <-time.After(20 * time.Millisecond):
	}
}

// TestHurry: while a fetch waits, one decoder works ahead, and urgent work goes on.
func TestHurry(t *testing.T) {
	p := newPool(3)
	start(t, p)
	p.Hurry()
	ahead, release := make(chan struct{}, 3), make(chan struct{})
	for range 3 {
		p.Join(step(func() {
			ahead <- struct{}{}
			<-release
		})).Offer(Urgency{Class: Ahead})
	}
	<-ahead
	select {
	case <-ahead:
		t.Error("two decoders work ahead in a hurry")
	case <-time.After(20 * time.Millisecond):
	}
	urgent := make(chan struct{})
	p.Join(step(func() { close(urgent) })).Offer(Urgency{Class: Wanted})
	<-urgent
	p.Calm()
	<-ahead
	<-ahead
	close(release)
}

// TestReadsAreBounded: at most as many random reads decode as the pool has decoders. A read that waits begins when
// another one ends, or when none has ended within the grace. Returned decoders are reused.
func TestReadsAreBounded(t *testing.T) {
	p := newPool(2)
	for i, want := range []bool{true, true, false} {
		if p.TryRead() != want {
			t.Errorf("read %d began: %v, want %v", i, !want, want)
		}
	}
	begun := make(chan error)
	go func() { begun <- p.BeginRead(t.Context()) }()
	select {
	case <-begun:
		t.Error("a third read began")
	case <-time.After(grace / 5):
	}
	from := time.Now()
	p.EndRead()
	if err := <-begun; err != nil {
		t.Error(err)
	}
	if err := p.BeginRead(t.Context()); err != nil || time.Since(from) < grace {
		t.Errorf("a read beside two that stand still began after %v: %v", time.Since(from), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.BeginRead(ctx); err == nil {
		t.Error("a read began after its context had ended")
	}
	for range 3 {
		p.EndRead()
	}
	if p.reads != 0 {
		t.Errorf("%d reads are left", p.reads)
	}
	d := p.Borrow()
	p.Return(d)
	if p.Borrow() != d {
		t.Error("a returned decoder was not reused")
	}
}

// TestStandingFeed: a feed whose reads stand still takes no decoder from the others for long.
func TestStandingFeed(t *testing.T) {
	const size = 2
	p := newPool(size)
	start(t, p)
	release := make(chan struct{})
	defer close(release)
	var standing *Member
	var inside atomic.Int32
	standing = p.Join(step(func() {
		standing.Offer(Urgency{Class: Requested})
		inside.Add(1)
		<-release
	}))
	standing.Offer(Urgency{Class: Requested})
	for inside.Load() < size {
		time.Sleep(time.Millisecond)
	}
	const rounds = 100
	done := make(chan struct{})
	n := 0
	var other *Member
	other = p.Join(step(func() {
		if n++; n == rounds {
			close(done)
		} else if n < rounds {
			other.Offer(Urgency{Class: Ahead})
		}
	}))
	other.Offer(Urgency{Class: Ahead})
	<-done
	if in := inside.Load(); in != size {
		t.Errorf("%d decoders stand in one feed, want %d", in, size)
	}
}

// TestReadsThatEndKeepOthersWaiting: reads that wait longer than the grace still wait for their turn while others end.
// Once none ends, one goes on after each grace.
func TestReadsThatEndKeepOthersWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(2)
		var now, most atomic.Int32
		var group sync.WaitGroup
		for range 100 {
			group.Go(func() {
				if err := p.BeginRead(t.Context()); err != nil {
					t.Error(err)
				}
				for in := now.Add(1); in > most.Load(); {
					most.Store(in)
				}
				time.Sleep(grace * 2 / 3)
				now.Add(-1)
				p.EndRead()
			})
		}
		group.Wait()
		if most.Load() != 2 {
			t.Errorf("%d reads at a time, want 2", most.Load())
		}
		for range 10 {
			group.Go(func() {
				_ = p.BeginRead(t.Context())
				now.Add(1)
				time.Sleep(time.Hour)
				p.EndRead()
			})
		}
		time.Sleep(3*grace + grace/2)
		if now.Load() != 5 {
			t.Errorf("%d reads stand after three times the grace, want 5", now.Load())
		}
		group.Wait()
	})
}
