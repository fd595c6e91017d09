package roster

import (
	"maps"
	"slices"

	pb "millrace/proto"
)

// TakeDirectory returns the directory if it has changed since the last call.
func (r *Roster) TakeDirectory() (dir *pb.Loaders, changed bool) {
	if !r.moved {
		return nil, false
	}
	r.moved = false
	switch protected := r.Unprotected(AllSources) == 0; {
	case !protected:
		r.protected = 0
	case r.protected == 0:
		r.protected = max(1, r.now.UnixMilli())
	}
	return r.Directory(), true
}

// Directory names the loader of each stripe, and its standby if that is ready. A stripe that is not in it has no reader now.
func (r *Roster) Directory() *pb.Loaders {
	dir := &pb.Loaders{}
	for _, st := range r.stripes {
		p := st.primary
		if p.member == nil {
			continue
		}
		src := &r.cfg.Sources[st.source]
		entry := &pb.LoaderStripe{Source: src.Name, Stripe: uint32(st.index), Stripes: uint32(len(src.Loaders)),
			Term: p.term, Address: p.member.address, Name: p.member.name, Beat: p.member.beat}
		if s := st.standby; s.canReplace(p) {
			entry.Standby = &pb.Standby{Term: s.term, Address: s.member.address, Name: s.member.name, Beat: s.member.beat}
		}
		dir.Stripes = append(dir.Stripes, entry)
	}
	return dir
}

// canReplace reports whether a standby can take over from a primary at once.
func (g grant) canReplace(primary grant) bool {
	return g.member != nil && g.ready && g.term > primary.term
}

// AllSources stands for the sources together.
const AllSources = -1

// Unprotected counts the stripes of a source without a ready standby.
func (r *Roster) Unprotected(source int) (n uint32) {
	for _, st := range r.stripes {
		if (source == AllSources || st.source == source) && !(st.primary.member != nil && st.standby.canReplace(st.primary)) {
			n++
		}
	}
	return n
}

// Protected returns the unix milliseconds since when every stripe has a ready standby, 0 if one has none.
func (r *Roster) Protected() int64 { return r.protected }

// Switches counts the stripes that a standby took over in this life of the orchestrator.
func (r *Roster) Switches() uint64 { return r.switches }

// AbsentOwners lists the owners of stripes that are not connected.
func (r *Roster) AbsentOwners() (out []string) {
	for _, st := range r.stripes {
		if r.members[st.owner] == nil && !slices.Contains(out, st.owner) {
			out = append(out, st.owner)
		}
	}
	return out
}

// Unread returns a source that waits for the owner of one of its stripes, which is not connected, and whether there is one.
func (r *Roster) Unread() (source, owner string, ok bool) {
	for _, st := range r.stripes {
		if st.primary.member == nil && r.members[st.owner] == nil {
			return r.sourceOf(st), st.owner, true
		}
	}
	return "", "", false
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

// Roles describes the members, by name. A member that reads nothing and has nothing of its own to read is a shadow.
func (r *Roster) Roles() (out []*pb.RoleStatus) {
	for _, l := range r.sortedMembers() {
		role := &pb.RoleStatus{Role: "loader", Name: l.name, Pid: l.pid, State: "starting"}
		if r.held(l) == 0 && r.isFree(l) {
			role.Role = "shadow"
		}
		for _, st := range r.stripes {
			for _, g := range []grant{st.primary, st.standby} {
				if g.member == l {
					role.State, role.Term = "running", max(role.Term, g.term)
				}
			}
		}
		if l.leaving {
			role.State = "stopping"
		}
		out = append(out, role)
	}
	return out
}
