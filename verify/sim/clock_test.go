package sim

import (
	"math/rand/v2"
	"sync"
	"time"

	"millrace/internal/seam"
)

// clock is the clock of one process. Its wall time may jump, its timers may be late, and a frozen process gets no
// timers.
type clock struct {
	mu     sync.Mutex
	rng    *rand.Rand
	skew   time.Duration
	boot   time.Duration // of the host's boot clock
	late   time.Duration // the longest delay of a timer
	frozen int
	held   []func() // timers that became due while it was frozen
}

var _ seam.Clock = (*clock)(nil)

func newClock(seed uint64) *clock {
	rng := rand.New(rand.NewPCG(seed, 9))
	return &clock{rng: rng, skew: time.Duration(rng.Int64N(int64(2*time.Hour))) - time.Hour}
}

// Now implements seam.Clock.
func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.skew)
}

// Boottime implements seam.Clock. All processes of a host have the same.
func (c *clock) Boottime() int64 { return time.Now().Add(c.boot).UnixNano() }

// After implements seam.Clock.
func (c *clock) After(d time.Duration) <-chan time.Time {
	out := make(chan time.Time, 1)
	ring := func() { out <- c.Now() }
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.late > 0 {
		d += time.Duration(c.rng.Int64N(int64(c.late)))
	}
	time.AfterFunc(d, func() {
		c.mu.Lock()
		if c.frozen > 0 {
			c.held = append(c.held, ring)
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		ring()
	})
	return out
}

// jump moves wall time.
func (c *clock) jump(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.skew += by
}

// lag makes timers late from now on.
func (c *clock) lag(most time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.late = most
}

// freeze holds timers back until thaw.
func (c *clock) freeze() (thaw func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frozen++
	return func() {
		c.mu.Lock()
		c.frozen--
		var due []func()
		if c.frozen == 0 {
			due, c.held = c.held, nil
		}
		c.mu.Unlock()
		for _, ring := range due {
			ring()
		}
	}
}
