package link

import (
	"slices"
	"time"

	"millrace/proto"
)

// member is a loader process, and the term under which it serves one stripe.
type member struct {
	name, address, beat string
	term                uint64
}

// stripeKey names a stripe of a source.
type stripeKey struct {
	source string
	stripe uint32
}

// route says which loader is asked for a stripe. The term of using never falls: a directory with a lower term is older
// than this host's own switch.
type route struct {
	using    *member         // is asked; nil: there is no loader
	standby  *member         // may be asked at any time, under a higher term; nil: there is none
	switched *proto.Switched // reported to every orchestrator until its directory agrees
	heard    uint64          // highest term under which a row came from using
	pace     pace
}

// names returns the names of the loader and of the standby, for the event log.
func (r *route) names() string {
	using, spare := "-", "-"
	if r.using != nil {
		using = r.using.name
	}
	if m := r.spare(); m != nil {
		spare = m.name
	}
	return using + " " + spare
}

// term returns the term of the loader, 0 if there is none.
func (r *route) term() uint64 {
	if r.using == nil {
		return 0
	}
	return r.using.term
}

// spare returns the standby if its term is above the loader's.
func (r *route) spare() *member {
	if r.standby != nil && r.using != nil && r.standby.term > r.using.term {
		return r.standby
	}
	return nil
}

// follow takes the stripe's entry of a directory; nil: it has none.
func (r *route) follow(s *proto.LoaderStripe) {
	r.standby = nil
	if s == nil {
		if r.switched == nil {
			r.using = nil
		}
		return
	}
	primary := member{name: s.Name, address: s.Address, beat: s.Beat, term: s.Term}
	// requests in flight know it by its place in memory
	// An unchanged loader keeps its place in memory, by which requests in flight know it.
	if r.using == nil || s.Term >= r.using.term && primary != *r.using {
		r.using = &primary
	}
	if r.switched != nil && s.Term >= r.switched.Term {
		r.switched = nil
	}
	if b := s.Standby; b != nil {
		r.standby = &member{name: b.Name, address: b.Address, beat: b.Beat, term: b.Term}
	}
}

// These values decide when a reply is late, and how often the standby may be asked for it.
const (
	paceWindow  = 64 // remembered replies
	paceKnown   = 16 // replies before any is late
	leastLate   = 20 * time.Millisecond
	timesLate   = 4
	hedgeCost   = 20 // requests that pay for a hedge: one in twenty
	mostCredits = 5 * hedgeCost
)

// pace knows how long the last first replies of a stripe took, and how many hedges its requests have paid for.
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

// late returns how long a reply may take: a multiple of the window's second longest time, which is about its 98th
// percentile. It returns 0 if too little is known.
func (p *pace) late() time.Duration {
	if len(p.took) < paceKnown {
		return 0
	}
	sorted := slices.Sorted(slices.Values(p.took))
	return max(leastLate, timesLate*sorted[len(sorted)-2])
}

// asked counts a request.
func (p *pace) asked() { p.credits = min(p.credits+1, mostCredits) }

// spend reports whether a hedge is paid for, and takes the price.
func (p *pace) spend() bool {
	if p.credits < hedgeCost {
		return false
	}
	p.credits -= hedgeCost
	return true
}
