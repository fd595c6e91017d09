package tier

import (
	"slices"
	"sync"
	"time"
)

// These bound the wait for a constructor.
const (
	silentAfter  = 10 * beatEvery         // without any message
	mostMistakes = 4                      // each doubles silentAfter
	forgetAfter  = 10 * time.Minute       // without a mistake
	leastLate    = 250 * time.Millisecond // from the request to the last row; see constructor.lateAfter
	mostLate     = 10 * time.Second       //
	unknownLate  = 2 * time.Second        // before enoughTimes answers
	timesLate    = 4
	enoughTimes  = 8
	mostTimes    = 32
	mostSlow     = 3           // steps in a row that the loaders sent sooner, though they were asked later
	firstPause   = time.Second // after a failure; it doubles with each further one
	mostPause    = time.Minute
)

// constructor is another sidecar that fetches for this one. It is safe for concurrent use.
type constructor struct {
	name, address string

	mu       sync.Mutex
	took     []time.Duration // of its newest answers, a ring
	next     int
	slow     int           // steps in a row that the loaders sent sooner
	mistakes int           // silences that were none, at most mostMistakes
	mistaken time.Time     // the newest of them
	pause    time.Duration // after the next failure; 0: firstPause
	resume   time.Time     // until then it is not asked
}

// isAsked reports whether a request is worth a try.
func (c *constructor) isAsked(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !now.Before(c.resume)
}

// lateAfter returns the time after which an answer is late: a multiple of the second longest of its newest answers.
func (c *constructor) lateAfter() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.took) < enoughTimes {
		return unknownLate
	}
	sorted := slices.Sorted(slices.Values(c.took))
	return min(max(timesLate*sorted[len(sorted)-2], leastLate), mostLate)
}

// silentAfter returns the time after which it is taken for silent.
func (c *constructor) silentAfter(now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.mistaken) > forgetAfter {
		c.mistakes = 0
	}
	return silentAfter << c.mistakes
}

// spoke notes that it was taken for silent and was not. A host that has no processor for a while looks like that.
func (c *constructor) spoke(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mistakes, c.mistaken = min(c.mistakes+1, mostMistakes), now
}

// answered notes an answer.
func (c *constructor) answered(took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.took) < mostTimes {
		c.took = append(c.took, took)
	} else {
		c.took[c.next] = took
	}
	c.next = (c.next + 1) % mostTimes
	c.slow, c.pause, c.resume = 0, 0, time.Time{}
}

// outrun notes that the loaders sent a step sooner. It reports whether that happens again and again.
func (c *constructor) outrun() (isSlow bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slow++
	return c.slow >= mostSlow
}

// failed notes a failure. It returns false if one was noted a moment before, by a request for another step.
func (c *constructor) failed(now time.Time) (pause time.Duration, isNew bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Before(c.resume) {
		return 0, false
	}
	pause = max(c.pause, firstPause)
	c.slow, c.pause, c.resume = 0, min(2*pause, mostPause), now.Add(pause)
	return pause, true
}
