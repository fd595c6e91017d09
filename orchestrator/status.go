package orchestrator

import (
	"os"

	"millrace/proto"
)

// Status is what people and metrics see. Floating point is for their eyes alone.
func (m *Machine) Status() *proto.StatusReply {
	r := &proto.StatusReply{Fence: m.fence(), Step: m.s.Watermark, Planned: m.s.Next, Sources: map[string]*proto.SourceStatus{},
		Recent: m.s.RecentQuarantines(), Waiting: m.Waiting(), Ended: m.s.Ended != nil, Pid: int64(os.Getpid()),
		Alerts: m.alerts.now, Masked: uint64(len(m.s.Masks)), Switches: m.roster.Switches(), Protected: m.roster.Protected()}
	base := m.s.PlannerState(len(m.cfg.Sources))
	next := base
	if tail := m.s.Tail(); tail != nil {
		next = &tail.Planner
	}
	r.Mixture = m.mixture(next)
	r.Stripes = m.roster.Directory().GetStripes()
	var total uint64
	for i := range base.Sources {
		total += base.Sources[i].Tokens
	}
	for i := range m.cfg.Sources {
		src := &base.Sources[i]
		s := &proto.SourceStatus{Tokens: src.Tokens, Samples: src.Samples, Epoch: uint32(src.Epoch), Ordinal: uint64(src.Ordinal), Offered: uint64(m.queues[i].Next()),
			Stripes: uint32(len(m.cfg.Sources[i].Loaders)), Unprotected: m.roster.Unprotected(i), PassedOver: src.PassedOver()}
		if total > 0 {
			s.Share = float64(src.Tokens) / float64(total)
		}
		if mf := m.s.Manifests[m.cfg.Sources[i].Name]; mf != nil {
			s.Shuffle, s.Why = mf.Shuffle, mf.Why
		}
		r.Sources[m.cfg.Sources[i].Name] = s
	}
	for _, n := range m.s.Quarantined {
		r.Quarantined += n
	}
	r.Roles = append(r.Roles, &proto.RoleStatus{Role: "orchestrator", Name: "orchestrator", Pid: r.Pid, State: "running", Term: m.s.Term})
	r.Roles = append(append(r.Roles, m.roster.Roles()...), m.sidecars.Roles(m.s.Term)...)
	return r
}
