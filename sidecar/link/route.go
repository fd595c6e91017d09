package link

import (
	"slices"
	"time"

	"millrace/proto"
	"millrace/sidecar/retrieve"
)

// newLoader returns the loader that an entry of a directory describes, for a process of the `up` here. Processes of one
// `up` share a host. Without an `up`, the run has one host.
func newLoader(here string, e *proto.Standby) *retrieve.Loader {
	m := &retrieve.Loader{Name: e.Name, Address: e.Address, Beat: e.Beat, Term: e.Term}
	if here != "" && e.Up != "" && e.Up != here {
		m.Address, m.Beat, m.IsRemote, m.Up = e.Remote, "", true, e.Up
	}
	return m
}

// stripeKey names a stripe of a source.
type stripeKey struct {
	source string
	stripe uint32
}

// route has the loader and the standby of a stripe. The term of using never falls: a directory with a lower term is
// older than this host's own switch.
type route struct {
	using    *retrieve.Loader // the loader; nil: there is none
	standby  *retrieve.Loader // answers requests at any time, under a higher term; nil: there is none
	switched *proto.Switched  // reported to every orchestrator until its directory agrees
	rowTerm  uint64           // the highest term under which using has sent a row
}

// names returns the names of the loader and of the standby, for the event log.
func (r *route) names() string {
	using, spare := "-", "-"
	if r.using != nil {
		using = r.using.Name
	}
	if m := r.spare(); m != nil {
		spare = m.Name
	}
	return using + " " + spare
}

// term returns the term of the loader, 0 if there is none.
func (r *route) term() uint64 {
	if r.using == nil {
		return 0
	}
	return r.using.Term
}

// spare returns the standby if its term is above the loader's.
func (r *route) spare() *retrieve.Loader {
	if r.standby != nil && r.using != nil && r.standby.Term > r.using.Term {
		return r.standby
	}
	return nil
}

// follow applies the stripe's entry of a directory to a process of the `up` here. nil: the directory has none.
func (r *route) follow(s *proto.LoaderStripe, here string) {
	r.standby = nil
	if s == nil {
		if r.switched == nil {
			r.using = nil
		}
		return
	}
	primary := newLoader(here, &proto.Standby{
		Term: s.Term, Name: s.Name, Up: s.Up, Address: s.Address, Remote: s.Remote, Beat: s.Beat,
	})
	// An unchanged loader keeps its pointer: requests in flight compare the pointer.
	if r.using == nil || s.Term >= r.using.Term && *primary != *r.using {
		r.using = primary
	}
	if r.switched != nil && s.Term >= r.switched.Term {
		r.switched = nil
	}
	if b := s.Standby; b != nil {
		r.standby = newLoader(here, b)
	}
}

// These values decide when a reply is late, and how many hedges a loader's requests pay for.
const (
	paceWindow  = 64 // remembered replies
	paceKnown   = 16 // replies; before that many, none is late
	leastLate   = 20 * time.Millisecond
	timesLate   = 4
	hedgeCost   = 20 // requests that pay for one hedge
	mostCredits = 5 * hedgeCost
)

// pace has the times to the first reply of a loader's last requests, and the credits that pay for hedges.
type pace struct {
	took    []time.Duration // a ring of the newest, at most paceWindow
	next    int
	limit   time.Duration // the result of late
	credits int
}

func newPace() *pace { return &pace{credits: hedgeCost} }

// note records the time to the first reply of a request.
func (p *pace) note(d time.Duration) {
	if len(p.took) < paceWindow {
		p.took = append(p.took, d)
	} else {
		p.took[p.next] = d
	}
	p.next = (p.next + 1) % paceWindow
	if len(p.took) >= paceKnown {
		sorted := slices.Sorted(slices.Values(p.took))
		p.limit = max(leastLate, timesLate*sorted[len(sorted)-2])
	}
}

// late returns the time after which a reply is late: a multiple of the second longest time, which is about the 98th
// percentile of the window. It returns 0 before paceKnown replies.
func (p *pace) late() time.Duration { return p.limit }

// earn counts a request.
func (p *pace) earn() { p.credits = min(p.credits+1, mostCredits) }

// spend takes the price of a hedge. It returns false if the credits are too few.
func (p *pace) spend() bool {
	if p.credits < hedgeCost {
		return false
	}
	p.credits -= hedgeCost
	return true
}
