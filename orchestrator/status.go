package orchestrator

import (
	"os"

	"millrace/proto"
)

// Status is what people and metrics see. Floating point is for their eyes alone.
func (m *Machine) Status() *proto.StatusReply {
	r := &proto.StatusReply{Fence: m.fence(), Step: m.s.Watermark, Planned: m.s.Next, Sources: map[string]*proto.SourceStatus{},
		Recent: m.s.Recent, Waiting: m.Waiting(), Ended: m.s.Ended != nil, Pid: int64(os.Getpid())}
	st, err := m.base()
	if err != nil {
		r.Waiting = err.Error()
		return r
	}
	r.Stripes = m.directory().GetLoaders().GetStripes()
	var total uint64
	for i := range st.Sources {
		total += st.Sources[i].Tokens
	}
	for i := range m.cfg.Sources {
		src := &st.Sources[i]
		s := &proto.SourceStatus{Tokens: src.Tokens, Samples: src.Samples, Epoch: uint32(src.Epoch), Ordinal: uint64(src.Ordinal), Offered: uint64(m.queues[i].Next())}
		if total > 0 {
			s.Share = float64(src.Tokens) / float64(total)
		}
		r.Sources[m.cfg.Sources[i].Name] = s
	}
	for _, n := range m.s.Quarantined {
		r.Quarantined += n
	}
	r.Roles = append(r.Roles, &proto.RoleStatus{Role: "orchestrator", Name: "orchestrator", Pid: r.Pid, State: "running", Term: m.s.Term})
	for _, name := range sortedKeys(m.loaders) {
		l := m.loaders[name]
		role := &proto.RoleStatus{Role: "loader", Name: name, Pid: l.pid, State: "starting"}
		for _, term := range l.terms {
			role.State, role.Term = "running", max(role.Term, term)
		}
		r.Roles = append(r.Roles, role)
	}
	for _, name := range sortedKeys(m.sidecars) {
		r.Roles = append(r.Roles, &proto.RoleStatus{Role: "sidecar", Name: name, Pid: m.sidecars[name].pid, State: "running", Term: m.s.Term})
	}
	return r
}
