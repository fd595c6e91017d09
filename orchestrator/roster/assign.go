package roster

import (
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
	IsIdle bool // no rank has asked for the stream: nothing is opened or read
}

// Decision says which assignments to journal, or which orders need no record. It is valid until the next event.
type Decision struct {
	Assigned []*pb.Assigned // Apply carries out each when it is durable
	open     []opening
	settled  bool // every stripe has everything that it can get now
	deferred bool // more, as soon as the next step is sealed
	dismiss  bool // members of an idle stream were asked to leave
}

// IsEmpty reports whether there is nothing to do.
func (d Decision) IsEmpty() bool {
	return len(d.Assigned) == 0 && len(d.open) == 0 && !d.settled && !d.dismiss
}

// opening is a source that a member opens next.
type opening struct {
	member *member
	source string
	known  bool // it has been read under this `up`
}

// Decide returns what to do next and changes nothing. Sources are opened first. Then every stripe gets a primary, then
// a standby. At last the members leave that were asked to.
//
// While ranks wait for the next step and every stripe is read, shadows open nothing: they would take the time of the
// readers.
func (r *Roster) Decide(j Journal) Decision {
	if j.IsIdle {
		return Decision{dismiss: isAnyLeaving(r.members)}
	}
	if !r.unsettled && (!r.deferred || j.IsAwaited) {
		return Decision{}
	}
	c := chooser{Roster: r, journal: j}
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
	if j.IsAwaited && r.stripes.unread == 0 {
		return Decision{settled: true, deferred: true}
	}
	if open := c.openings(c.followed); len(open) > 0 {
		return Decision{open: open}
	}
	if out := c.standbys(); len(out) > 0 {
		return Decision{Assigned: out}
	}
	return Decision{settled: true}
}

// Settle carries out the part of a decision that needs no record.
func (r *Roster) Settle(d Decision) {
	for _, o := range d.open {
		o.member.asked[o.source] = true
		open := &pb.OpenSource{Source: o.source, Known: o.known}
		r.order(o.member, &pb.LoaderOrder{Order: &pb.LoaderOrder_Open{Open: open}})
	}
	if d.dismiss {
		r.dismiss()
	}
	if d.settled {
		r.unsettled, r.newcomers, r.deferred = false, false, d.deferred
		r.dismiss()
	}
}

// chooser chooses readers of stripes from the members of a roster and the journal. It changes neither.
type chooser struct {
	*Roster
	journal Journal
}

// openings lists the sources of some stripes of each member that the member has not opened.
func (c *chooser) openings(stripes func(*member) []*stripe) (out []opening) {
	for _, l := range c.sortedMembers() {
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

// ownStripes lists a member's own stripes, and those that it read last.
func (c *chooser) ownStripes(l *member) (out []*stripe) {
	for _, st := range c.stripes.all {
		if st.owner == l.name || c.holder(st) == l.name {
			out = append(out, st)
		}
	}
	return out
}

// followed lists all stripes for a member without stripes of its own. It opens them when the readers have opened all
// sources, so that no source is indexed twice.
func (c *chooser) followed(l *member) []*stripe {
	if !c.stripes.isFree(l) {
		return nil
	}
	return c.stripes.all
}

// wasRead reports whether a source has been read under this `up`. Its files were there then, so a loader waits for
// files that are away.
func (c *chooser) wasRead(source int) bool {
	for _, st := range c.stripes.bySource[source] {
		if h := c.journal.Holder(st.name, uint32(st.index)); h != nil && h.Up == c.cfg.Up {
			return true
		}
	}
	return false
}

// holder returns the member that read a stripe last under this `up`, or its owner.
func (c *chooser) holder(st *stripe) string {
	if h := c.journal.Holder(st.name, uint32(st.index)); h != nil && h.Up == c.cfg.Up {
		return h.Member
	}
	return st.owner
}

func (c *chooser) primaries() (out []*pb.Assigned) {
	term := c.journal.Term
	for _, st := range c.stripes.all {
		if st.primary.member != nil && !st.primary.member.leaving {
			continue
		}
		a := st.assignment(c.cfg.Up)
		a.Step, a.Reason = c.journal.Next, st.reason
		if st.from > 0 {
			a.Step = st.from
		}
		if st.standby.member != nil {
			a.Member, a.Term = st.standby.member.name, st.standby.term
		} else if l := c.successor(st); l != nil {
			term++
			a.Member, a.Term = l.name, term
		} else {
			continue
		}
		out = append(out, a)
	}
	return out
}

// successor returns the next reader of a stripe without a standby, nil for none yet: the process that read it last or
// its owner, for which it waits a moment; else a member that has nothing of its own to read.
func (c *chooser) successor(st *stripe) *member {
	going := st.primary.member
	for _, name := range []string{c.holder(st), st.owner} {
		l := c.members[name]
		switch {
		case l != nil && l.leaving, l == nil && (going != nil || c.isGone(name)):
		case l != nil && l.opened[st.name]:
			return l
		case going == nil:
			return nil // the member is about to come, or opens the source
		}
	}
	return c.leastLoaded(st.name, func(l *member) bool { return l != going && c.stripes.isFree(l) }, c.stripes.held)
}

// leastLoaded returns the member with the least load of those that have opened a source and may take more.
func (c *chooser) leastLoaded(source string, may func(*member) bool, load func(*member) int) (best *member) {
	for _, l := range c.sortedMembers() {
		if l.opened[source] && !l.leaving && may(l) && (best == nil || load(l) < load(best)) {
			best = l
		}
	}
	return best
}

// standbys gives every stripe that is read a standby on a member that reads nothing. After losses there may be no such
// member. Then a shadow that reads something stands by for other stripes, and an owner for its stripes that a shadow
// reads. These standbys move as soon as a free member is there.
func (c *chooser) standbys() (out []*pb.Assigned) {
	held, follows := map[*member]int{}, map[*member]int{}
	for _, st := range c.stripes.all {
		held[st.primary.member]++
		follows[st.standby.member]++
	}
	free := map[*member]bool{}
	for _, l := range c.members {
		free[l] = held[l] == 0 && c.stripes.isFree(l)
	}
	term := c.journal.Term
	for _, st := range c.stripes.all {
		if st.primary.member == nil {
			continue
		}
		now, valid := st.standby.member, st.standby.member != nil && st.standby.term > st.primary.term
		if valid && held[now] == 0 {
			continue
		}
		load := func(l *member) int { return follows[l] }
		l := c.leastLoaded(st.name, func(l *member) bool { return free[l] }, load)
		switch {
		case l == nil && valid:
			continue
		case now != nil && (l == nil || held[now] == 0):
			l = now // it follows the stripe already
		case l == nil:
			l = c.leastLoaded(st.name, func(l *member) bool {
				return held[l] > 0 && l != st.primary.member && (l.name == st.owner || !c.stripes.isOwner(l.name))
			}, load)
		}
		if l == nil {
			continue
		}
		follows[now]--
		follows[l]++
		term++
		a := st.assignment(c.cfg.Up)
		a.Member, a.Term, a.Standby = l.name, term, true
		a.Step, a.Reason = c.journal.Next, "stands by for "+st.primary.member.name
		out = append(out, a)
	}
	return out
}
