package supervisor

import (
	"fmt"
	"time"
)

// The restart policy. A first death is answered at once; more of them wait longer.
const (
	firstDelay = 50 * time.Millisecond // of the second restart; doubles from there
	maxDelay   = 2 * time.Second
	calmLife   = 10 * time.Second       // a life this long forgets the delays
	healthy    = 5 * time.Second        // a life this long forgets the deaths
	struck     = 200 * time.Millisecond // killed from outside after a life this long, it restarts at once, however often

	faultWindow = 30 * time.Second
	maxFaults   = 8  // deaths by own fault within the window
	loudStreak  = 64 // short lives in a row after which a person should look: an out-of-memory kill repeats for ever
)

// blame says whose fault a death is.
type blame int

const (
	own     blame = iota
	outside       // killed or asked to leave
	lacking       // what it needs is not there for now, such as room on a disk
)

// lives remembers a child's deaths as far as they decide about the next restart.
type lives struct {
	restarts int
	delays   int         // delays served since the last calm life
	hits     int         // lives in a row that something outside ended at birth
	waits    int         // lives in a row that something lacked
	streak   int         // short lives in a row
	faults   []time.Time // recent deaths by own fault, oldest first
}

// died takes a death at now after a life of lived and says how long to wait; a non-empty verdict means that the child is given up. Only
// its own faults can bring that about: what kills from outside may go on for ever, and room on a disk may be made at any time.
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

// backOff is the delay before a restart after n that were delayed or could have been.
func backOff(n int) time.Duration {
	if n == 0 {
		return 0
	}
	return min(firstDelay<<min(n-1, 10), maxDelay)
}
