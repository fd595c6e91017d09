package supervisor

import (
	"fmt"
	"time"
)

// The restart policy. The first restart comes at once, later ones after growing delays.
const (
	firstDelay = 50 * time.Millisecond // of the second restart; doubles with each further one
	maxDelay   = 2 * time.Second
	calmLife   = 10 * time.Second       // a life of this length resets the delays
	healthy    = 5 * time.Second        // a life of this length resets the deaths
	struck     = 200 * time.Millisecond // after a life of this length, a kill from outside causes no delay

	faultWindow = 30 * time.Second
	maxFaults   = 8  // deaths by own fault within the window
	loudStreak  = 64 // short lives in a row after which a line warns: out-of-memory kills repeat without limit
)

// blame is the cause of a death.
type blame int

const (
	own     blame = iota
	outside       // killed or asked to leave
	lacking       // it waits for something, such as room on a disk
)

// lives counts a child's deaths for the decision about its next restart.
type lives struct {
	restarts int
	delays   int         // delays served since the last calm life
	hits     int         // lives in a row that were ended from outside at birth
	waits    int         // lives in a row that ended in a wait
	streak   int         // short lives in a row
	refused  int         // starts in a row for which the host lacked something
	faults   []time.Time // recent deaths by own fault, oldest first
}

// died counts a death at time now, after a life of length lived, and returns the delay of the restart. If the verdict
// is not empty, the child is not restarted. Only a child's own faults lead to a verdict. Kills from outside are not its
// fault, and room on a disk may appear at any time.
func (l *lives) died(now time.Time, lived time.Duration, why blame) (delay time.Duration, verdict string) {
	if lived >= healthy {
		l.streak, l.waits, l.faults = 0, 0, nil
	}
	if lived >= calmLife {
		l.delays = 0
	}
	if lived >= struck || why != outside {
		l.hits = 0
	}
	if why != lacking {
		l.waits = 0
	}
	l.streak++
	switch why {
	case outside:
		delay = backOff(l.hits)
		if lived < struck {
			l.hits++
		}
		return delay, ""
	case lacking:
		l.waits++
		return backOff(l.waits), ""
	}
	l.faults = append(l.faults, now)
	for len(l.faults) > 0 && now.Sub(l.faults[0]) > faultWindow {
		l.faults = l.faults[1:]
	}
	if len(l.faults) >= maxFaults {
		return 0, fmt.Sprintf("died %d times within %v", len(l.faults), faultWindow)
	}
	delay = backOff(l.delays)
	l.delays++
	return delay, ""
}

// backOff returns the delay of a restart after n earlier ones.
func backOff(n int) time.Duration {
	if n == 0 {
		return 0
	}
	return min(firstDelay<<min(n-1, 10), maxDelay)
}
