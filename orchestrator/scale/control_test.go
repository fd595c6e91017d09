package scale

import (
	"testing"
	"time"
)

// control is a Control whose scaler wishes what a test tells it.
type control struct {
	*testing.T
	*Control
	at time.Time
}

func newControl(t *testing.T) *control {
	s := New(Limits{1, 8}, func(uint64) []float64 { return []float64{1} }, nil)
	return &control{t, NewControl(s), time.Unix(1000, 0)}
}

func (c *control) wishes(n int) {
	c.at = c.at.Add(time.Second)
	c.now = Sample{At: c.at, There: 4}
	c.past = []Sample{c.now}
	c.next = Wish{Loaders: n, Why: "a test wants it", kind: grows}
}

// orders expects an order and carries it out. 0: there is none.
func (c *control) orders(loaders int, line string) {
	c.Helper()
	o, ok := c.Decide()
	if ok != (loaders > 0) || ok && (o.Loaders != loaders || o.Line != line) {
		c.Fatalf("ordered %+v (%v), want %d loaders with %q", o, ok, loaders, line)
	}
	if ok {
		c.Settle(o)
	}
}

func TestAnEngineIsAskedWhenItIsKnown(t *testing.T) {
	c := newControl(t)
	c.orders(0, "")
	c.Found(3) // of the orchestrator before
	c.orders(3, "")
	c.orders(0, "")
	c.Found(1) // it counts once
	c.orders(0, "")
}

func TestAnEngineWithTooFewOrTooManyIsSetRight(t *testing.T) {
	for _, found := range []int{0, 20} {
		c := newControl(t)
		c.Found(found)
		want := min(max(found, 1), 8)
		c.orders(want, "")
	}
}

func TestAWishIsOrderedOnce(t *testing.T) {
	c := newControl(t)
	c.Found(1)
	c.orders(1, "")
	c.wishes(4)
	c.orders(4, "scale: 4 loaders instead of 1: a test wants it")
	c.orders(0, "")
	c.wishes(2)
	c.orders(2, "scale: 2 loaders instead of 4: a test wants it")
	c.orders(0, "")
	c.Trouble("no room")
	if s := c.Status(); s.Wished != 2 || s.There != 4 || s.Why != "a test wants it" || s.Changed.IsZero() ||
		s.Trouble != "no room" || s.Max != 8 {
		t.Errorf("the status is %+v", s)
	}
}
