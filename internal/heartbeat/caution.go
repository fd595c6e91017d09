package heartbeat

import "time"

// How a caution grows and ends.
const (
	mostCaution = 16               // times what is allowed at first
	calm        = 10 * time.Minute // without a suspicion: then it ends
)

// Caution is what the judges of one host learn from suspicions that the kernel did not confirm. Each doubles what every one of them allows
// from then on: who is merely slow is replaced by another who is as slow, and without this the two could be replaced by each other for
// ever, each beginning anew what the other had half done. That a process is dead or stopped is seen as quickly as before. The zero value
// is ready; not safe for concurrent use.
type Caution struct {
	doubts uint
	last   time.Time // of the suspicions
}

// factor is how many times the allowances apply.
func (c *Caution) factor(now time.Time) time.Duration {
	if now.Sub(c.last) >= calm {
		c.doubts = 0
	}
	return min(time.Duration(1)<<c.doubts, mostCaution)
}

func (c *Caution) suspected(now time.Time) { c.doubts, c.last = min(c.doubts+1, mostCaution), now }
