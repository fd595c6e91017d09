package supervisor

import (
	"fmt"
	"time"
)

// The restart policy. A first death is answered at once; more of them wait longer.
const (
	firstDelay = 50 * time.Millisecond // of the second restart; doubles from there
	maxDelay   = 2 * time.Second
	calmLife   = 10 * time.Second // a life this long forgets the delays
	healthy    = 5 * time.Second  // a life this long forgets the deaths
	struck     = time.Second      // a child killed from outside after this long was not at fault and restarts at once

	faultWindow = 30 * time.Second
	maxFaults   = 8  // deaths by own fault within the window
	maxStreak   = 64 // short lives in a row, whatever the reason: an out-of-memory kill repeats for ever
)

// lives remembers a child's deaths as far as they decide about the next restart.
type lives struct {
	restarts int
	delays   int         // delays served since the last calm life
	streak   int         // short lives in a row
	faults   []time.Time // recent deaths by own fault, oldest first
}

// died takes a death at now after a life of lived and says how long to wait; a non-empty verdict means that the child is given up.
func (l *lives) died(now time.Time, lived time.Duration, outside bool) (delay time.Duration, verdict string) {
	if lived >= healthy {
		l.streak, l.faults = 0, nil
	}
	if lived >= calmLife {
		l.delays = 0
	}
	l.streak++
	if !outside {
		l.faults = append(l.faults, now)
	}
	for len(l.faults) > 0 && now.Sub(l.faults[0]) > faultWindow {
		l.faults = l.faults[1:]
	}
	if len(l.faults) >= maxFaults {
		return 0, fmt.Sprintf("died %d times within %v", len(l.faults), faultWindow)
	}
	if l.streak >= maxStreak {
		return 0, fmt.Sprintf("died %d times in a row, never living %v", l.streak, healthy)
	}
	l.restarts++
	if outside && lived >= struck {
		return 0, ""
	}
	if l.delays > 0 {
		delay = min(firstDelay<<min(l.delays-1, 10), maxDelay)
	}
	l.delays++
	return delay, ""
}
