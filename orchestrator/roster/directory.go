package roster

import (
	"maps"
	"slices"

	"millrace"
	pb "millrace/proto"
)

// HasMoved reports whether the directory has changed since its news were taken.
func (r *Roster) HasMoved() bool { return len(r.stripes.news) > 0 }

// TakeNews returns the part of the directory that has changed since the last call, for those who use it. It notes since
// when every stripe is protected.
func (r *Roster) TakeNews() *pb.Loaders {
	switch protected := r.Unprotected(AllSources) == 0; {
	case !protected:
		r.protected = 0
	case r.protected == 0:
		r.protected = max(1, r.now.UnixMilli())
	}
	return r.stripes.takeNews()
}

// Directory names the loader of each stripe, and its standby if that is ready. A stripe that is not in it has no reader
// now.
func (r *Roster) Directory() *pb.Loaders { return r.stripes.directory() }

// Unprotected counts the stripes of a source without a ready standby.
func (r *Roster) Unprotected(source int) uint32 { return r.stripes.countUnprotected(source) }

// Protected returns the unix milliseconds since when every stripe has a ready standby, 0 if one has none.
func (r *Roster) Protected() int64 { return r.protected }

// Switches counts the stripes that a standby took over in this life of the orchestrator.
func (r *Roster) Switches() uint64 { return r.switches }

// Missing is a loader that is waited for.
type Missing struct {
	Name        string // "": it is expected, and has not come in this life of the orchestrator
	Host        string // "": not known, or the run has one
	IsRestarted bool   // the `up` of the orchestrator starts it again
}

// Absent lists the loaders that are waited for: those that may come back, and those that are expected. A loader that
// left for good is neither.
func (r *Roster) Absent() (out []Missing) {
	there := len(r.left)
	for _, l := range r.members {
		if !l.hello.Standby {
			there++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.lost)) {
		if r.members[name] != nil || r.lost[name].isShadow {
			continue
		}
		if there < r.cfg.Loaders || r.stripes.isOwner(name) {
			out = append(out, r.missing(name))
			there++
		}
	}
	for ; there < r.cfg.Loaders; there++ {
		out = append(out, Missing{})
	}
	return out
}

// missing describes a loader that is not there.
func (r *Roster) missing(name string) Missing {
	was, ok := r.lost[name]
	return Missing{Name: name, Host: was.host, IsRestarted: ok && r.isOwn(was.up)}
}

// isOwn reports whether an `up` is the orchestrator's.
func (r *Roster) isOwn(up string) bool { return up == "" || up == r.cfg.Up }

// Unread returns a source that waits for the owner of one of its stripes, which is not connected, and whether there is
// one. An owner without a name is not chosen yet.
func (r *Roster) Unread() (source string, owner Missing, ok bool) {
	if r.stripes.unread == 0 {
		return "", Missing{}, false
	}
	for _, st := range r.stripes.all {
		if st.primary.member == nil && r.members[st.owner] == nil {
			return st.name, r.missing(st.owner), true
		}
	}
	return "", Missing{}, false
}

// Trouble is a source that a member cannot read for now.
type Trouble struct{ Member, Source, Text string }

// Troubles lists all of them, by member and source.
func (r *Roster) Troubles() (out []Trouble) {
	for _, l := range r.sortedMembers() {
		for _, source := range slices.Sorted(maps.Keys(l.trouble)) {
			out = append(out, Trouble{l.name, source, l.trouble[source]})
		}
	}
	return out
}

// Roles describes the members, by name. A member that reads no stripe and has none of its own to read is a shadow.
func (r *Roster) Roles() (out []*pb.RoleStatus) {
	for _, l := range r.sortedMembers() {
		role := &pb.RoleStatus{Role: "loader", Name: l.name, Pid: l.hello.Pid, Host: l.hello.Host, State: "starting",
			Cache: l.cache}
		if r.stripes.held(l) == 0 && r.stripes.isFree(l) {
			role.Role = "shadow"
		}
		if term, ok := r.stripes.highestTerm(l); ok {
			role.State, role.Term = "running", term
		} else if l.spare {
			role.State = "waiting"
		}
		if l.leaving {
			role.State = "stopping"
		}
		out = append(out, role)
	}
	return out
}

// Reader returns the name of the member that reads an ordinal of a source, "" if none does.
func (r *Roster) Reader(source int, n millrace.Ordinal) string {
	all := r.stripes.bySource[source]
	if m := all[n.Stripe(uint64(len(all)))].primary.member; m != nil {
		return m.name
	}
	return ""
}
