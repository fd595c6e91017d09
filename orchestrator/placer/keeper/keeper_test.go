package keeper

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"millrace/orchestrator/placer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// engine fails a number of requests and then takes each goal.
type engine struct {
	mu      sync.Mutex
	fails   int
	applied []int
	slow    chan struct{} // nil, or Apply waits for it
}

func (e *engine) fail() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fails > 0 {
		e.fails--
		return errors.New("engine: role loader: no room: add a host")
	}
	return nil
}

func (e *engine) Apply(ctx context.Context, d placer.Desired) error {
	if e.slow != nil {
		select {
		case <-e.slow:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := e.fail(); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.applied = append(e.applied, d.Roles[0].Count)
	return nil
}

func (e *engine) Observe(context.Context) ([]placer.Instance, error) {
	return []placer.Instance{{Role: "loader", Name: "loader-0"}}, e.fail()
}

// quick is a clock whose pauses are over at once. It counts them.
type quick struct {
	mu     sync.Mutex
	pauses []time.Duration
}

func (*quick) Now() time.Time { return time.Unix(0, 0) }

func (*quick) Boottime() int64 { return 0 }

func (q *quick) After(d time.Duration) <-chan time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pauses = append(q.pauses, d)
	c := make(chan time.Time, 1)
	c <- time.Time{}
	return c
}

// start runs a keeper until the end of the test. Its news come on the channel.
func start(t *testing.T, e *engine) (*Keeper, *quick, <-chan News) {
	news, clock := make(chan News, 100), &quick{}
	k := New(e, clock, func(_ context.Context, n News) { news <- n })
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { k.Run(ctx) })
	t.Cleanup(func() { cancel(); done.Wait() })
	return k, clock, news
}

func next(t *testing.T, news <-chan News) News {
	t.Helper()
	select {
	case n := <-news:
		return n
	case <-time.After(time.Minute):
		t.Fatal("no news within a minute")
		return News{}
	}
}

func goal(n int) placer.Desired {
	return placer.Desired{Roles: []placer.Wanted{{Role: "loader", Count: n}}}
}

func TestAGoalIsCarriedOutAfterFailures(t *testing.T) {
	e := &engine{fails: 2}
	k, clock, news := start(t, e)
	for range 2 {
		if n := next(t, news); n.Err == nil {
			t.Fatalf("a failed look gave %+v", n)
		}
	}
	if n := next(t, news); len(n.Exist) != 1 || n.Err != nil {
		t.Fatalf("the first news are %+v", n)
	}
	e.mu.Lock()
	e.fails = 7
	e.mu.Unlock()
	k.Want(goal(3))
	for range 7 {
		if n := next(t, news); n.Err == nil || n.Exist != nil {
			t.Fatalf("a failed goal gave %+v", n)
		}
	}
	if n := next(t, news); n.Err != nil || n.Exist != nil {
		t.Fatalf("an accepted goal gave %+v", n)
	}
	if got := fmt.Sprint(e.applied); got != "[3]" {
		t.Errorf("the engine took %s", got)
	}
	if got := fmt.Sprint(clock.pauses); got != "[1s 2s 1s 2s 4s 8s 16s 30s 30s]" {
		t.Errorf("the pauses are %s", got)
	}
}

// TestTheNewestGoalCounts: Want does not wait for an engine that is slow, and goals that are old are not carried out.
func TestTheNewestGoalCounts(t *testing.T) {
	e := &engine{slow: make(chan struct{})}
	k, _, news := start(t, e)
	next(t, news)
	for n := range 5 {
		k.Want(goal(n))
	}
	close(e.slow)
	next(t, news)
	deadline := time.Now().Add(time.Minute)
	for {
		e.mu.Lock()
		got := append([]int{}, e.applied...)
		e.mu.Unlock()
		if n := len(got); n > 0 && got[n-1] == 4 && n <= 2 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the engine took %v", got)
		}
		time.Sleep(time.Millisecond)
	}
}
