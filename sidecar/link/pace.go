package link

import (
	"slices"
	"time"
)

// What makes a reply late, and how often that may be acted upon.
const (
	paceWindow  = 64 // replies that are remembered
	paceKnown   = 16 // fewer of them say nothing
	leastLate   = 20 * time.Millisecond
	timesLate   = 4
	hedgeCost   = 20 // requests that pay for a hedge: one in twenty
	mostCredits = 5 * hedgeCost
)

// pace is how long a stripe's first rows took of late, and how many hedges that pays for.
type pace struct {
	took    []time.Duration // a ring of the newest, at most paceWindow
	next    int
	credits int
}

func newPace() pace { return pace{credits: hedgeCost} }

// note remembers how long the first reply to a request took.
func (p *pace) note(d time.Duration) {
	if len(p.took) < paceWindow {
		p.took = append(p.took, d)
	} else {
		p.took[p.next] = d
	}
	p.next = (p.next + 1) % paceWindow
}

// late is how long a reply may take before it is late: a multiple of the second longest of the window, about its 98th percentile. It is
// 0 where too little is known.
func (p *pace) late() time.Duration {
	if len(p.took) < paceKnown {
		return 0
	}
	sorted := slices.Sorted(slices.Values(p.took))
	return max(leastLate, timesLate*sorted[len(sorted)-2])
}

// asked counts a request.
func (p *pace) asked() { p.credits = min(p.credits+1, mostCredits) }

// spend tells whether a hedge is paid for, and pays.
func (p *pace) spend() bool {
	if p.credits < hedgeCost {
		return false
	}
	p.credits -= hedgeCost
	return true
}
