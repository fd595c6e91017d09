package pool

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"millrace/sources/feed/decode"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// step is a Feed that is a function.
type step func()

func (s step) Step(*decode.Decoder) { s() }

func newPool(size int) *Pool {
	return New(size, func() *decode.Decoder { return decode.New(func() {}, nil) })
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
	if now := runtime.NumGoroutine(); now > before+1 {
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

// TestHelpersAreBounded: at most as many goroutines help as the pool has decoders, and returned decoders are reused.
func TestHelpersAreBounded(t *testing.T) {
	p := newPool(2)
	if !p.TryHelp() || !p.TryHelp() || p.TryHelp() {
		t.Error("want two helpers and no third")
	}
	p.EndHelp()
	if !p.TryHelp() {
		t.Error("a helper that ended makes no room")
	}
	d := p.Borrow()
	p.Return(d)
	if p.Borrow() != d {
		t.Error("a returned decoder was not reused")
	}
}
