package link

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc"

	"millrace"
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

// route is who is asked for a stripe. The term of using never falls: a directory that says less is older than what this host did.
type route struct {
	stripes  uint32
	using    *member         // who is asked; nil where nobody is there
	standby  *member         // who may be asked without asking anybody, under a higher term; nil where there is none
	switched *proto.Switched // what every orchestrator is told until its directory says the same
	heard    uint64          // highest term under which a row came from who is asked
	pace     pace
}

// names says for the event record who is asked and who could be.
func (r *route) names() string {
	out := []string{"-", "-"}
	for i, m := range []*member{r.using, r.spare()} {
		if m != nil {
			out[i] = m.name
		}
	}
	return strings.Join(out, " ")
}

// term is the one that is used, 0 where nobody is there.
func (r *route) term() uint64 {
	if r.using == nil {
		return 0
	}
	return r.using.term
}

// spare is the standby, where it still is one.
func (r *route) spare() *member {
	if r.standby != nil && r.using != nil && r.standby.term > r.using.term {
		return r.standby
	}
	return nil
}

// follow takes what a directory says of the stripe; nil: nothing.
func (r *route) follow(s *proto.LoaderStripe) {
	r.standby = nil
	if s == nil {
		if r.switched == nil {
			r.using = nil
		}
		return
	}
	primary := member{name: s.Name, address: s.Address, beat: s.Beat, term: s.Term}
	if r.using == nil || s.Term >= r.using.term && primary != *r.using { // requests in flight know it by its place in memory
		r.using = &primary
	}
	if r.switched != nil && s.Term >= r.switched.Term {
		r.switched = nil
	}
	if b := s.Standby; b != nil {
		r.standby = &member{name: b.Name, address: b.Address, beat: b.Beat, term: b.Term}
	}
}

// direct takes a whole directory. Standbys are connected to at once, so that a switch needs no dial; who is not in it any more is hung
// up on: an address is that of one process life. The caller holds mu.
func (l *Link) direct(d *proto.Loaders) error {
	l.cfg.Fail.Hit("sidecar/directory/before")
	named := map[stripeKey]*proto.LoaderStripe{}
	for _, s := range d.Stripes {
		if s.Stripes == 0 {
			return millrace.Errorf(millrace.ErrInvalid, "directory of loaders: source %s has no stripes", s.Source)
		}
		key := stripeKey{s.Source, s.Stripe}
		named[key] = s
		if l.routes[key] == nil {
			l.routes[key] = &route{pace: newPace()}
		}
		l.routes[key].stripes = s.Stripes
	}
	for key, r := range l.routes {
		before := r.names()
		r.follow(named[key])
		if now := r.names(); now != before {
			l.record("directed", -1, fmt.Sprintf("%s %d %s", key.source, key.stripe, now), r.term())
		}
	}
	l.hangUp()
	for _, r := range l.routes {
		for _, m := range []*member{r.using, r.standby} {
			if m == nil {
				continue
			}
			if conn, err := l.connect(m.address); err == nil {
				conn.Connect()
			}
		}
	}
	l.cfg.Fail.Hit("sidecar/directory/after")
	return nil
}

// hangUp closes the connections to processes that nobody names any more. The caller holds mu.
func (l *Link) hangUp() {
	keep := []string{l.cfg.Orchestrator}
	for _, r := range l.routes {
		for _, m := range []*member{r.using, r.standby} {
			if m != nil {
				keep = append(keep, m.address)
			}
		}
	}
	for address, conn := range l.conns {
		if !slices.Contains(keep, address) {
			delete(l.conns, address)
			conn.Close()
		}
	}
	for address, w := range l.watched {
		if w.asks == 0 && !slices.Contains(keep, address) {
			delete(l.watched, address)
			w.close()
		}
	}
}

// dial is the connection to an address, made where there is none.
func (l *Link) dial(address string) (*grpc.ClientConn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.connect(address)
}

// change switches a stripe from a member to its standby. It reports whether somebody else is asked now.
func (l *Link) change(key stripeKey, from *member, step millrace.Step, why string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.routes[key]
	if r == nil || r.using != from {
		return r != nil && r.using != nil
	}
	to := r.spare()
	if to == nil {
		return false
	}
	l.cfg.Fail.Hit("sidecar/switch/before")
	r.using, r.standby = to, nil
	r.switched = &proto.Switched{Source: key.source, Stripe: key.stripe, Term: to.term, Step: uint64(step),
		Reason: fmt.Sprintf("%s: %s", from.name, why)}
	l.cfg.Log.Warn("a loader was replaced by its standby", "source", key.source, "stripe", key.stripe, "step", uint64(step), "loader", from.name, "standby", to.name, "reason", why)
	l.record("switched", int64(step), fmt.Sprintf("%s %d %s", key.source, key.stripe, to.name), to.term)
	l.send(&proto.SidecarEvent{Event: &proto.SidecarEvent_Switched{Switched: r.switched}})
	l.cfg.Fail.Hit("sidecar/switch/after")
	l.announce()
	return true
}

// heard notes in the event record the first rows that came from a stripe's loader under a term: from then on it is known to serve.
func (l *Link) heard(key stripeKey, m *member, step millrace.Step) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.routes[key]; r != nil && r.heard < m.term {
		r.heard = m.term
		l.record("heard", int64(step), fmt.Sprintf("%s %d %s", key.source, key.stripe, m.name), m.term)
	}
}

// isAhead tells that this host has switched a stripe and the orchestrator's directory does not say so yet.
func (l *Link) isAhead(key stripeKey) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.routes[key]
	return r != nil && r.switched != nil
}

// asked is who is asked for a stripe now and who could be instead, and the channel that is closed when that may have changed.
func (l *Link) asked(key stripeKey) (using, spare *member, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.routes[key]; r != nil {
		return r.using, r.spare(), l.changed
	}
	return nil, nil, l.changed
}
