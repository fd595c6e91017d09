package orchestrator

import (
	"os"

	"millrace/proto"
)

// Status is what people and metrics see. Floating point is for their eyes alone.
func (m *Machine) Status() *proto.StatusReply {
	r := &proto.StatusReply{Fence: m.fence(), Step: m.s.Watermark, Planned: m.s.Next, Sources: map[string]*proto.SourceStatus{},
		Recent: m.s.Recent, Waiting: m.Waiting(), Ended: m.s.Ended != nil, Pid: int64(os.Getpid()),
		Alerts: m.alerts, Masked: uint64(len(m.s.Masks)), Switches: m.switches, Protected: m.protected}
	base := m.s.Planner(len(m.cfg.Sources))
	next := base
	if tail := m.s.Tail(); tail != nil {
		next = &tail.Planner
	}
	r.Mixture = m.mixture(next)
	r.Stripes = m.directory().GetLoaders().GetStripes()
	var total uint64
	for i := range base.Sources {
		total += base.Sources[i].Tokens
	}
	for i := range m.cfg.Sources {
		src := &base.Sources[i]
		s := &proto.SourceStatus{Tokens: src.Tokens, Samples: src.Samples, Epoch: uint32(src.Epoch), Ordinal: uint64(src.Ordinal), Offered: uint64(m.queues[i].Next()),
			Stripes: uint32(len(m.cfg.Sources[i].Loaders)), Unprotected: m.unprotected(i), PassedOver: src.PassedOver()}
		if total > 0 {
			s.Share = float64(src.Tokens) / float64(total)
		}
		r.Sources[m.cfg.Sources[i].Name] = s
	}
	for _, n := range m.s.Quarantined {
		r.Quarantined += n
	}
	r.Roles = append(r.Roles, &proto.RoleStatus{Role: "orchestrator", Name: "orchestrator", Pid: r.Pid, State: "running", Term: m.s.Term})
	for _, name := range sortedKeys(m.members) {
		r.Roles = append(r.Roles, m.role(m.members[name]))
	}
	for _, name := range sortedKeys(m.sidecars) {
		r.Roles = append(r.Roles, &proto.RoleStatus{Role: "sidecar", Name: name, Pid: m.sidecars[name].pid, State: "running", Term: m.s.Term})
	}
	return r
}

// role is what a member is by what it was given: who reads nothing and has nothing of its own to read is a shadow.
func (m *Machine) role(l *member) *proto.RoleStatus {
	role := &proto.RoleStatus{Role: "loader", Name: l.name, Pid: l.pid, State: "starting"}
	if m.holds(l) == 0 && m.free(l) {
		role.Role = "shadow"
	}
	for _, st := range m.stripes {
		for _, g := range []grant{st.primary, st.standby} {
			if g.member == l {
				role.State, role.Term = "running", max(role.Term, g.term)
			}
		}
	}
	if l.leaving {
		role.State = "stopping"
	}
	return role
}
