package heartbeat

import "time"

// The growth and the end of a caution.
const (
	mostCaution = 16               // the largest factor
	calm        = 10 * time.Minute // so much time without a suspicion ends the caution
)

// Caution counts the suspicions of a host's judges that the kernel did not confirm, or that a later beat refuted. Each
// suspicion doubles the allowances of all judges. Without a Caution, two slow processes could replace each other
// without end, and each would repeat the work of the other. It does not delay the kernel's reports of dead and stopped
// processes. The zero value is ready. Not safe for concurrent use.
type Caution struct {
	doubts uint
	last   time.Time // time of the last suspicion
}

// factor returns the factor of the allowances.
func (c *Caution) factor(now time.Time) time.Duration {
	if now.Sub(c.last) >= calm {
		c.doubts = 0
	}
	return min(time.Duration(1)<<c.doubts, mostCaution)
}

// suspect counts a suspicion. It raises the factor to at most most.
func (c *Caution) suspect(now time.Time, most time.Duration) {
	if c.factor(now) < most {
		c.doubts++
	}
	c.last = now
}
