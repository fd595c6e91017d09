package roster

import (
	pb "millrace/proto"
)

// Journal is the journaled state of the run that assignments follow from.
type Journal struct {
	Term      uint64                  // highest assignment term
	Next      uint64                  // first step that is not sealed
	Manifests map[string]*pb.Manifest // pinned, by source
	// Holder returns the last primary assignment of a stripe, nil before there is one.
	Holder func(source string, stripe uint32) *pb.Assigned
}

// Assign returns the next assignments to journal: first a primary for every stripe without one, then standbys. It returns none if
// every stripe has everything that it can get.
func (r *Roster) Assign(j Journal) []*pb.Assigned {
	if !r.unsettled {
		return nil
	}
	r.openSources(j)
	if len(j.Manifests) == len(r.cfg.Sources) && !r.HasUnpinned() {
		if out := r.assignPrimaries(j); len(out) > 0 {
			return out
		}
		if out := r.assignStandbys(j); len(out) > 0 {
			return out
		}
	}
	r.unsettled = false
	r.dismiss()
	return nil
}

// openSources tells members to open the sources that they may have to serve: the sources that they read last, and their own. A member
// without stripes of its own opens every source that somebody has opened, so that no source is indexed twice.
func (r *Roster) openSources(j Journal) {
	for _, l := range r.sortedMembers() {
		free := r.isFree(l)
		for _, st := range r.stripes {
			source := r.sourceOf(st)
			if !l.asked[source] && (st.owner == l.name || r.holder(j, st) == l.name || free && j.Manifests[source] != nil) {
				l.asked[source] = true
				open := &pb.OpenSource{Source: source, Known: r.wasRead(j, st.source)}
				r.order(l, &pb.LoaderOrder{Order: &pb.LoaderOrder_Open{Open: open}})
			}
		}
	}
}

// wasRead reports whether a source has been read under this `up`. Its files were there then, so a loader waits for files that are away.
func (r *Roster) wasRead(j Journal, source int) bool {
	for _, st := range r.bySource[source] {
		if h := j.Holder(r.sourceOf(st), uint32(st.index)); h != nil && h.Up == r.cfg.Up {
			return true
		}
	}
	return false
}

// holder returns the member that read a stripe last under this `up`, or its owner.
func (r *Roster) holder(j Journal, st *stripe) string {
	if h := j.Holder(r.sourceOf(st), uint32(st.index)); h != nil && h.Up == r.cfg.Up {
		return h.Member
	}
	return st.owner
}

func (r *Roster) assignPrimaries(j Journal) (out []*pb.Assigned) {
	term := j.Term
	for _, st := range r.stripes {
		if st.primary.member != nil && !st.primary.member.leaving {
			continue
		}
		a := r.assignment(st)
		a.Step, a.Reason = j.Next, st.reason
		if st.from > 0 {
			a.Step = st.from
		}
		if st.standby.member != nil {
			a.Member, a.Term = st.standby.member.name, st.standby.term
		} else if l := r.successor(j, st); l != nil {
			term++
			a.Member, a.Term = l.name, term
		} else {
			continue
		}
		out = append(out, a)
	}
	return out
}

// successor returns the next reader of a stripe without a standby, nil for none yet: the process that read it last or its owner, for which
// it waits a moment; else a member that has nothing of its own to read.
func (r *Roster) successor(j Journal, st *stripe) *member {
	source, going := r.sourceOf(st), st.primary.member
	for _, name := range []string{r.holder(j, st), st.owner} {
		l := r.members[name]
		switch {
		case l != nil && l.leaving, l == nil && (going != nil || r.isGone(name)):
		case l != nil && l.opened[source]:
			return l
		case going == nil:
			return nil // the member is about to come, or opens the source
		}
	}
	return r.leastLoaded(source, func(l *member) bool { return l != going && r.isFree(l) }, r.held)
}

// leastLoaded returns the member with the least load of those that have opened a source and may take more.
func (r *Roster) leastLoaded(source string, may func(*member) bool, load func(*member) int) (best *member) {
	for _, l := range r.sortedMembers() {
		if l.opened[source] && !l.leaving && may(l) && (best == nil || load(l) < load(best)) {
			best = l
		}
	}
	return best
}

// assignStandbys gives every stripe that is read a standby on a member that reads nothing. After losses there may be no such member. Then
// a shadow that reads something stands by for other stripes, and an owner for its stripes that a shadow reads; these standbys move as soon
// as a free member is there.
func (r *Roster) assignStandbys(j Journal) (out []*pb.Assigned) {
	held, follows := map[*member]int{}, map[*member]int{}
	for _, st := range r.stripes {
		held[st.primary.member]++
		follows[st.standby.member]++
	}
	free := map[*member]bool{}
	for _, l := range r.members {
		free[l] = held[l] == 0 && r.isFree(l)
	}
	term := j.Term
	for _, st := range r.stripes {
		if st.primary.member == nil {
			continue
		}
		now, valid := st.standby.member, st.standby.member != nil && st.standby.term > st.primary.term
		if valid && held[now] == 0 {
			continue
		}
		source, load := r.sourceOf(st), func(l *member) int { return follows[l] }
		l := r.leastLoaded(source, func(l *member) bool { return free[l] }, load)
		switch {
		case l == nil && valid:
			continue
		case now != nil && (l == nil || held[now] == 0):
			l = now // it follows the stripe already
		case l == nil:
			l = r.leastLoaded(source, func(l *member) bool {
				return held[l] > 0 && l != st.primary.member && (l.name == st.owner || !r.isOwner(l.name))
			}, load)
		}
		if l == nil {
			continue
		}
		follows[now]--
		follows[l]++
		term++
		a := r.assignment(st)
		a.Member, a.Term, a.Standby, a.Step, a.Reason = l.name, term, true, j.Next, "stands by for "+st.primary.member.name
		out = append(out, a)
	}
	return out
}

func (r *Roster) assignment(st *stripe) *pb.Assigned {
	return &pb.Assigned{Source: r.sourceOf(st), Stripe: uint32(st.index), Up: r.cfg.Up}
}

// held counts the stripes that a member is primary of.
func (r *Roster) held(l *member) (n int) {
	for _, st := range r.stripes {
		if st.primary.member == l {
			n++
		}
	}
	return n
}

// isFree reports whether a member has nothing of its own to read: it owns no stripe, or others read all stripes that it owns.
func (r *Roster) isFree(l *member) bool {
	for _, st := range r.stripes {
		if st.owner == l.name && (st.primary.member == nil || st.primary.member == l) {
			return false
		}
	}
	return true
}
