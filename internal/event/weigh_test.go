package event

import (
	"runtime"
	"testing"
	"time"

	"millrace/internal/seam"
)

// ticks is a clock for Settle. A short wait calls tick and ends at once. The test ends the wait of a second.
type ticks struct {
	seam.System
	tick   func()
	second chan time.Time
}

func (c *ticks) After(d time.Duration) <-chan time.Time {
	if d == time.Second {
		return c.second
	}
	c.tick()
	now := make(chan time.Time, 1)
	now <- time.Time{}
	return now
}

// TestSettle: Settle waits for goroutines that end, and stops after a second for goroutines that stay.
func TestSettle(t *testing.T) {
	const many = 20
	had := Weigh("start")
	ends := make(chan struct{}, many)
	run := func(n int) {
		for range n {
			go func() { <-ends }()
		}
	}
	clock := &ticks{second: make(chan time.Time, 1), tick: func() {
		select {
		case ends <- struct{}{}:
		default:
		}
		runtime.Gosched()
	}}
	run(many)
	if Settle(clock, had); runtime.NumGoroutine() >= had.Goroutines+many {
		t.Error("goroutines that end were not waited for")
	}
	run(many)
	waits := 0
	clock.tick = func() {
		if waits++; waits == 3 {
			clock.second <- time.Time{}
		}
	}
	if Settle(clock, had); runtime.NumGoroutine() < had.Goroutines+many || waits < 3 {
		t.Errorf("%d goroutines after %d waits", runtime.NumGoroutine(), waits)
	}
	close(ends)
}
