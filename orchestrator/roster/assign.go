package roster

import (
	"cmp"

	pb "millrace/proto"
)

// Journal is the journaled state of the run that assignments follow from.
type Journal struct {
	Term      uint64                  // highest assignment term
	Next      uint64                  // first step that is not sealed
	IsAwaited bool                    // ranks wait for this step, and none is sealed ahead
	Manifests map[string]*pb.Manifest // pinned, by source
	// Holder returns the last primary assignment of a stripe, nil before there is one.
	Holder func(source string, stripe uint32) *pb.Assigned
	IsIdle bool // no rank has asked for the stream: loaders open and read no source
}

// Decision says which assignments to journal, or which orders need no record. It is valid until the next event.
type Decision struct {
	Assigned []*pb.Assigned // Apply carries out each when it is durable
	owners   *ownership     // nil: as before
	open     []opening
	settled  bool // every stripe has everything that it can get now
	deferred bool // more, as soon as the next step is sealed
	dismiss  bool // members of an idle stream were asked to leave
}

// IsEmpty reports whether there is nothing to do.
func (d Decision) IsEmpty() bool {
	return len(d.Assigned) == 0 && len(d.open) == 0 && d.owners == nil && !d.settled && !d.dismiss
}

// opening is a source that a member opens next.
type opening struct {
	member *member
	source string
	known  bool // it has been read under this `up`
}

// Decide returns what to do next and changes nothing. Stripes get owners first, and the owners open the sources. Then
// every stripe gets a primary, then a standby. A stripe that is to move gets its owner as the standby, and moves when
// that is ready. At last the members leave that were asked to.
//
// While ranks wait for the next step and every stripe is read, shadows open no source and no stripe moves: that would
// take the time of the readers. A member that leaves for good is not held up, and a loader without a stripe is not
// either: it may be there because the ranks wait.
func (r *Roster) Decide(j Journal) Decision {
	if j.IsIdle {
		return Decision{dismiss: isAnyLeaving(r.members)}
	}
	if !r.unsettled && (!r.deferred || j.IsAwaited) {
		return Decision{}
	}
	c := chooser{Roster: r, journal: j, sorted: r.sortedMembers()}
	if owners := c.ownership(); owners != nil {
		return Decision{owners: owners}
	}
	if r.newcomers {
		if open := c.openings(c.ownStripes); len(open) > 0 {
			return Decision{open: open}
		}
	}
	if len(j.Manifests) < len(r.cfg.Sources) || len(r.unpinned) > 0 {
		return Decision{settled: true}
	}
	if out := c.primaries(); len(out) > 0 {
		return Decision{Assigned: out}
	}
	busy := j.IsAwaited && r.stripes.unread == 0 && !r.isAnyHandingOver()
	if busy && !c.isAnyIdle() {
		return Decision{settled: true, deferred: true}
	}
	if out := c.moves(); len(out) > 0 {
		return Decision{Assigned: out}
	}
	if open := c.openings(c.destined); len(open) > 0 {
		return Decision{open: open}
	}
	if open := c.openings(c.followed); len(open) > 0 && !busy {
		return Decision{open: open}
	}
	if out := c.standbys(); len(out) > 0 {
		return Decision{Assigned: out}
	}
	return Decision{settled: true, deferred: busy}
}

// Settle carries out the part of a decision that needs no record.
func (r *Roster) Settle(d Decision) {
	for _, o := range d.open {
		o.member.asked[o.source] = true
		open := &pb.OpenSource{Source: o.source, Known: o.known}
		r.order(o.member, &pb.LoaderOrder{Order: &pb.LoaderOrder_Open{Open: open}})
	}
	if d.owners != nil {
		d.owners.apply(r)
	}
	if d.dismiss {
		r.dismiss()
	}
	if d.settled {
		r.unsettled, r.newcomers, r.deferred = false, false, d.deferred
		r.dropLeftovers()
		r.dismiss()
	}
}

// chooser chooses readers of stripes from the members of a roster and the journal. It changes neither.
type chooser struct {
	*Roster
	journal Journal
	sorted  []*member // by name
}

// openings lists the sources of some stripes of each member that the member has not opened.
func (c *chooser) openings(stripes func(*member) []*stripe) (out []opening) {
	for _, l := range c.sorted {
		listed := map[string]bool{}
		for _, st := range stripes(l) {
			if !l.asked[st.name] && !listed[st.name] {
				listed[st.name] = true
				out = append(out, opening{member: l, source: st.name, known: c.wasRead(st.source)})
			}
		}
	}
	return out
}

// ownStripes lists a member's own stripes that have no reader or that it reads, and those that it read last.
func (c *chooser) ownStripes(l *member) (out []*stripe) {
	for _, st := range c.stripes.all {
		isOwn := st.owner == l.name && (st.primary.member == nil || st.primary.member == l)
		if isOwn || c.lastReader(st) == l.name {
			out = append(out, st)
		}
	}
	return out
}

// followed lists all stripes for a member without stripes of its own. It opens them when the readers have opened all
// sources, so that no source is indexed twice.
func (c *chooser) followed(l *member) []*stripe {
	if !c.stripes.isFree(l) || len(c.destined(l)) > 0 {
		return nil
	}
	return c.stripes.all
}

// wasRead reports whether a source has been read under an `up` of this run that is there. Its files were there then, so
// a loader waits for files that are away.
func (c *chooser) wasRead(source int) bool {
	for _, st := range c.stripes.bySource[source] {
		if h := c.journal.Holder(st.name, uint32(st.index)); h != nil && c.isHere(h.Up) {
			return true
		}
	}
	return false
}

// lastReader returns the member that read a stripe last under an `up` that is there, "" if none did.
func (c *chooser) lastReader(st *stripe) string {
	if h := c.journal.Holder(st.name, uint32(st.index)); h != nil && c.isHere(h.Up) {
		return h.Member
	}
	return ""
}

// isHere reports whether an `up` is the orchestrator's, or one whose members are connected.
func (c *chooser) isHere(up string) bool {
	if up == c.cfg.Up {
		return true
	}
	for _, l := range c.members {
		if l.hello.Up == up && up != "" {
			return true
		}
	}
	return false
}

func (c *chooser) primaries() (out []*pb.Assigned) {
	term := c.journal.Term
	for _, st := range c.stripes.all {
		from := st.primary.member
		if from != nil && (!from.leaving || c.Roster.handsOver(from) && !st.standby.ready) {
			continue
		}
		next := st.standby
		if next.member == nil {
			next = grant{member: c.successor(st), term: term + 1}
		}
		if next.member == nil {
			continue
		}
		term = max(term, next.term)
		a := c.assignment(st, next)
		if a.Reason = st.reason; st.from > 0 {
			a.Step = st.from
		}
		out = append(out, a)
	}
	return out
}

// successor returns the next reader of a stripe without a standby, nil for none yet: the process that read it last or
// its owner, for which it waits a moment; else a member that has nothing of its own to read.
func (c *chooser) successor(st *stripe) *member {
	going := st.primary.member
	for _, name := range []string{c.lastReader(st), st.owner} {
		l := c.members[name]
		switch {
		case name == "", l != nil && l.leaving, l == nil && (going != nil || c.isGone(name, Absence)):
		case l != nil && l.opened[st.name]:
			return l
		case l != nil && st.last != nil && c.substitute(st, going) != nil:
			// the stripe was read, and does not wait until its new owner has opened the source
		case going == nil:
			return nil // the member is about to come, or opens the source
		}
	}
	if st.owner == "" && c.waits {
		return nil // loaders are expected
	}
	return c.substitute(st, going)
}

// substitute returns the best member that has nothing of its own to read, nil if none can read a stripe at once. The
// host of the last reader may be gone.
func (c *chooser) substitute(st *stripe, going *member) *member {
	may := func(l *member) bool { return l != going && c.stripes.isFree(l) && l.name != st.owner }
	return c.best(st, may, func(l *member) int { return distance(st.last, l.hello) }, c.stripes.held)
}

// assignment returns a journal record that gives a stripe to a member. Without an `up` of its own, the member is of the
// orchestrator's.
func (c *chooser) assignment(st *stripe, g grant) *pb.Assigned {
	return &pb.Assigned{Source: st.name, Stripe: uint32(st.index), Member: g.member.name, Term: g.term,
		Up: cmp.Or(g.member.hello.Up, c.cfg.Up), Step: c.journal.Next}
}

// distance returns how far apart two processes are: 0 for one `up`, 1 for two of one host, 2 for two hosts. A nil
// process has distance 0 to every other one.
func distance(a, b *pb.LoaderHello) int {
	switch {
	case a == nil, a.Up == b.Up:
		return 0
	case a.Host == b.Host:
		return 1
	}
	return 2
}

// best returns the member with the highest rank, and the least load among those, of the members that have opened a
// stripe's source and may take it. nil: there is none.
func (c *chooser) best(st *stripe, may func(*member) bool, rank, load func(*member) int) (best *member) {
	for _, l := range c.sorted {
		if !l.opened[st.name] || l.leaving || !may(l) {
			continue
		}
		if best == nil || cmp.Or(cmp.Compare(rank(best), rank(l)), cmp.Compare(load(l), load(best))) < 0 {
			best = l
		}
	}
	return best
}

// following is the load of the members of a roster.
type following struct {
	*chooser
	held, follows map[*member]int // stripes that a member reads, and that it stands by for
	free          map[*member]bool
}

func (c *chooser) following() following {
	f := following{chooser: c, held: map[*member]int{}, follows: map[*member]int{}, free: map[*member]bool{}}
	for _, st := range c.stripes.all {
		f.held[st.primary.member]++
		f.follows[st.standby.member]++
	}
	for _, l := range c.members {
		f.free[l] = f.held[l] == 0 && c.stripes.isFree(l) && len(c.destined(l)) == 0
	}
	return f
}

// rank compares the members that may stand by for a stripe. A member of another host comes first: the host of the
// primary may be lost as a whole. A member that reads no stripe comes next.
func (f following) rank(st *stripe, l *member) int {
	rank := 2 * distance(st.primary.member.hello, l.hello)
	if f.held[l] == 0 {
		rank++
	}
	return rank
}

// elsewhere is the least rank of a member of another host.
const elsewhere = 4

// next returns the best member to stand by for a stripe, nil if there is none. After losses every member may read a
// stripe. Then a shadow that reads one stands by for other stripes, and an owner for its stripes that a shadow reads.
func (f following) next(st *stripe) *member {
	may := func(l *member) bool {
		return f.free[l] || f.held[l] > 0 && l != st.primary.member && !l.spare &&
			(l.name == st.owner || !f.stripes.isOwner(l.name))
	}
	rank := func(l *member) int { return f.rank(st, l) }
	return f.best(st, may, rank, func(l *member) int { return f.follows[l] })
}

// standbys gives every stripe that is read a standby. A standby moves as soon as a better member is there.
func (c *chooser) standbys() (out []*pb.Assigned) {
	f, term := c.following(), c.journal.Term
	moving := 0
	for _, st := range c.stripes.all {
		if to := c.destination(st); to != nil && st.standby.member == to {
			moving++
		}
	}
	for _, st := range c.stripes.all {
		if st.primary.member == nil {
			continue
		}
		now, l := st.standby.member, f.next(st)
		to := c.destination(st)
		switch {
		case to != nil && (now == to || to.opened[st.name] && moving < mostMoves):
			if l = to; now != to {
				moving++
			}
		case now != nil && (l == nil || f.rank(st, now) >= f.rank(st, l)):
			l = now // it follows the stripe already
		}
		if l == nil || l == now && st.standby.term > st.primary.term {
			continue
		}
		f.follows[now]--
		f.follows[l]++
		term++
		out = append(out, c.standby(st, grant{member: l, term: term}))
	}
	if len(out) == 0 && c.stripes.gaps == 0 {
		return f.spread()
	}
	return out
}

// spread moves the standby of one stripe to another member of its host's distance that follows less: otherwise the
// first member of a host that comes would follow, and later read, all stripes of the other hosts. The stripe is
// unprotected for a moment, so one moves at a time, and while all others are protected.
func (f following) spread() []*pb.Assigned {
	for _, st := range f.stripes.all {
		now, l := st.standby.member, f.next(st)
		if f.destination(st) != nil {
			continue
		}
		if rank := f.rank(st, now); l != nil && rank >= elsewhere && f.rank(st, l) == rank &&
			f.follows[now] > f.follows[l]+1 {
			return []*pb.Assigned{f.standby(st, grant{member: l, term: f.journal.Term + 1})}
		}
	}
	return nil
}

// standby returns a journal record that makes a member the standby of a stripe.
func (c *chooser) standby(st *stripe, g grant) *pb.Assigned {
	a := c.assignment(st, g)
	a.Standby, a.Reason = true, "stands by for "+st.primary.member.name
	return a
}
