package roster

import (
	"bytes"
	"fmt"
	"time"

	"millrace/internal/wire"
	"millrace/orchestrator/offers"
	pb "millrace/proto"
)

// Connect observes a loader that connected. A predecessor of the same name is lost with everything that it held. A
// process that was replaced or fenced is refused.
func (r *Roster) Connect(session Session, hello *pb.LoaderHello) error {
	if err := CheckVersion(hello.Name, hello.Version, r.cfg.Program); err != nil {
		return err
	}
	if err := r.succession.check(hello); err != nil {
		return err
	}
	if old := r.members[hello.Name]; old != nil {
		if old.hello.Identity != hello.Identity {
			r.bye(old, "another process took over as "+hello.Name)
		}
		r.lose(old, "another connection took over as "+hello.Name)
	}
	if err := r.succession.check(hello); err != nil { // its own earlier session was lost just now
		return err
	}
	r.succession.follow(hello.Name, hello.Identity)
	delete(r.left, hello.Name)
	r.members[hello.Name] = &member{
		name:    hello.Name,
		hello:   hello,
		session: session,
		asked:   map[string]bool{},
		opened:  map[string]bool{},
		trouble: map[string]string{},
		held:    hello.Held,
	}
	r.unsettled, r.newcomers, r.unshared = true, true, true
	return nil
}

// Disconnect observes that a loader's stream ended.
func (r *Roster) Disconnect(session Session, name string) {
	if l := r.current(session, name); l != nil {
		r.lose(l, "its connection ended")
	}
}

// Leaving observes that a loader was asked to leave. It serves on until its stripes have been handed over. If it leaves
// for good, other loaders own its stripes from now on.
func (r *Roster) Leaving(session Session, name string, msg *pb.Leaving) {
	l := r.current(session, name)
	if l == nil {
		return
	}
	l.leaving, l.forGood = true, msg.ForGood
	r.unsettled, r.unshared = true, true
	for _, st := range r.stripes.all {
		if st.standby.member == l {
			r.stripes.hold(st, st.primary, grant{})
		}
		if st.primary.member == l {
			st.reason = l.name + " was asked to leave"
		}
	}
}

// Opened observes the manifest of a source as a loader sees it. pinned is the journaled manifest, nil before there is
// one. The error says which file differs from it.
func (r *Roster) Opened(session Session, name string, seen, pinned *pb.Manifest) error {
	l := r.current(session, name)
	if l == nil || r.stripes.get(seen.Source, 0) == nil {
		return nil
	}
	for _, mf := range r.unpinned {
		if mf.Source == seen.Source {
			pinned = mf
		}
	}
	if pinned == nil {
		r.unpinned = append(r.unpinned, seen)
	} else if !bytes.Equal(pinned.Fingerprint, seen.Fingerprint) {
		if err := r.cfg.Compare(wire.ManifestFromProto(pinned), wire.ManifestFromProto(seen)); err != nil {
			return err
		}
	}
	l.opened[seen.Source], r.unsettled = true, true
	return nil
}

// Offered observes offers. It takes only those of a stripe's primary under its term. The error says that a file changed
// during the run.
func (r *Roster) Offered(session Session, name string, msg *pb.Offered) error {
	l := r.current(session, name)
	if l == nil {
		return nil
	}
	for _, of := range msg.Stripes {
		st := r.stripes.get(of.Source, of.Stripe)
		if st == nil || st.primary.member != l || st.primary.term != of.Term {
			continue
		}
		if err := r.queues[st.source].Add(offers.FromProto(of)); err != nil {
			return err
		}
	}
	return nil
}

// Ready observes that a standby can take over at once.
func (r *Roster) Ready(session Session, name string, msg *pb.Ready) {
	l, st := r.current(session, name), r.stripes.get(msg.Source, msg.Stripe)
	if l != nil && st != nil && st.standby.member == l && st.standby.term == msg.Term && !st.standby.ready {
		ready := st.standby
		ready.ready = true
		r.stripes.hold(st, st.primary, ready)
		r.unsettled = true // the standby of another stripe may move now
	}
}

// Trouble observes that reading a source fails for now, or works again.
func (r *Roster) Trouble(session Session, name string, t *pb.Trouble) {
	l := r.current(session, name)
	switch {
	case l == nil:
	case t.Text == "":
		delete(l.trouble, t.Source)
	default:
		l.trouble[t.Source] = t.Text
	}
}

// CacheFigures observes the figures of a member's token cache.
func (r *Roster) CacheFigures(session Session, name string, f *pb.CacheFigures) {
	if l := r.current(session, name); l != nil {
		l.cache = f
	}
}

// current returns the member that a session belongs to, nil for a session that was replaced.
func (r *Roster) current(session Session, name string) *member {
	if l := r.members[name]; l != nil && l.session == session {
		return l
	}
	return nil
}

// UpOf returns the `up` of the loader that a session belongs to. It is empty for a session that was replaced, and for a
// run on one host.
func (r *Roster) UpOf(session Session, name string) string {
	if l := r.current(session, name); l != nil {
		return l.hello.Up
	}
	return ""
}

// lose removes a process. If one of its stripes has a standby, the process is fenced: the standby takes over in this
// turn, and the process may be alive without knowing.
func (r *Roster) lose(l *member, reason string) {
	delete(r.members, l.name)
	r.lost[l.name] = absence{r.now, l.hello.Standby, l.hello.Host, l.hello.Up}
	if l.forGood {
		delete(r.lost, l.name) // no decision waits for it
		if !l.hello.Standby {
			r.left[l.name] = true
		}
	}
	r.unsettled, r.unshared = true, true
	followed := false
	for _, st := range r.stripes.all {
		if st.standby.member == l {
			r.stripes.hold(st, st.primary, grant{})
		}
		if st.primary.member == l {
			r.stripes.hold(st, grant{}, st.standby)
			st.last = l.hello
			st.from, st.reason = 0, fmt.Sprintf("%s was lost: %s", l.name, reason)
			followed = followed || st.standby.member != nil
		}
	}
	if followed {
		r.succession.replace(l.name, l.hello.Identity)
		r.bye(l, "its stripes were given to others: "+reason)
		if r.isOwn(l.hello.Up) {
			r.out.Fence(Process{Name: l.name, Identity: l.hello.Identity, Pid: l.hello.Pid})
		}
	}
}

// isGone reports whether a member has been away for so long.
func (r *Roster) isGone(name string, time time.Duration) bool {
	since := r.began
	if lost, ok := r.lost[name]; ok {
		since = lost.since
	}
	return r.members[name] == nil && r.now.Sub(since) >= time
}

// isAnyLeaving reports whether a member was asked to leave.
func isAnyLeaving(members map[string]*member) bool {
	for _, l := range members {
		if l.leaving {
			return true
		}
	}
	return false
}

// isAnyHandingOver reports whether a member leaves for good and has not handed over everything.
func (r *Roster) isAnyHandingOver() bool {
	for _, l := range r.members {
		if r.handsOver(l) {
			return true
		}
	}
	return false
}

// handsOver reports whether a member leaves for good and another one can still take over a stripe from it.
func (r *Roster) handsOver(l *member) bool {
	if !l.forGood || r.stripes.held(l) == 0 {
		return false
	}
	for _, other := range r.members {
		if !other.leaving && !other.spare {
			return true
		}
	}
	return false
}

// dismiss lets members leave that were asked to. Others hold their stripes, or no member can take them.
func (r *Roster) dismiss() {
	for _, l := range r.sortedMembers() {
		if l.leaving && !r.handsOver(l) {
			r.bye(l, "it was asked to leave, and its stripes are in other hands")
			r.lose(l, "it was asked to leave")
		}
	}
}
