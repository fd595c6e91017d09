package facts

import (
	"cmp"
	"maps"
	"slices"

	"millrace/orchestrator/planner"
	"millrace/proto"
)

// Snapshot encodes the state. Sealed plans have digests and deltas only: the ledger has the rest.
func (s *State) Snapshot() *proto.Snapshot {
	out := &proto.Snapshot{
		Identity:         s.Identity,
		PlannerVersion:   s.PlannerVersion,
		Term:             s.Term,
		AssignTerm:       s.AssignTerm,
		Acknowledged:     s.Watermark,
		Ended:            s.Ended,
		Recent:           s.Recent,
		Quarantined:      s.Quarantined,
		QuarantinedBelow: s.QuarantinedBelow,
		Saved:            s.Saved,
		HasSaved:         s.HasSaved,
		Masks:            s.Masks,
		Chain:            s.Chain,
		Consumed:         s.Consumed,
		Mixed:            s.Mixed,
		Changes:          s.Changes,
		Settled:          s.Settled,
		Cuts:             s.Cuts,
		FirstUp:          s.FirstUp,
	}
	for _, name := range slices.Sorted(maps.Keys(s.Manifests)) {
		m := s.Manifests[name]
		if m.Parts > 0 {
			m = withTable(m, nil, m.Parts)
		}
		out.Manifests = append(out.Manifests, m)
	}
	for _, h := range s.Holders {
		out.Holders = append(out.Holders, h)
	}
	slices.SortFunc(out.Holders, func(a, b *proto.Assigned) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Stripe, b.Stripe))
	})
	if s.Attempt != nil {
		out.Attempt = &proto.Opened{
			Attempt: s.Attempt.Attempt,
			Step:    s.Attempt.Step,
			State:   s.Base.EncodeInside(s.Inside()),
			Placing: s.Attempt.Placing,
			Up:      s.Attempt.Up,
		}
	}
	for rank := range s.Through {
		out.Through = append(out.Through, rank)
	}
	slices.Sort(out.Through)
	for step := s.Watermark; step < s.Next; step++ {
		p := s.Sealed[step].Plan
		out.Sealed = append(out.Sealed, &proto.Plan{Step: step, Content: p.Content, Delta: p.Delta})
	}
	return out
}

// Restore decodes a snapshot into the state at the watermark. The caller reads sealed steps after it from the ledger.
// Without the mixture file's spec it leaves overrides out.
func Restore(m *proto.Snapshot, spec *planner.Spec) (*State, error) {
	s := NewState()
	s.Identity, s.PlannerVersion, s.Term, s.AssignTerm = m.Identity, m.PlannerVersion, m.Term, m.AssignTerm
	s.Watermark, s.Next, s.Ended, s.Recent = m.Acknowledged, m.Acknowledged, m.Ended, m.Recent
	s.Saved, s.HasSaved, s.FirstUp = m.Saved, m.HasSaved, m.FirstUp
	s.Attempt, s.Masks, s.Mixed = m.Attempt, m.Masks, m.Mixed
	s.Changes, s.Settled, s.Cuts = max(m.Changes, uint64(len(m.Mixed))), m.Settled, m.Cuts
	for _, h := range m.Holders {
		s.Holders[Stripe{h.Source, h.Stripe}] = h
	}
	if m.Attempt != nil {
		var err error
		if s.Base, err = readOwn(m.Attempt.State, spec); err != nil {
			return nil, err
		}
	}
	for _, mf := range m.Manifests {
		s.Manifests[mf.Source] = mf
	}
	maps.Copy(s.Quarantined, m.Quarantined)
	maps.Copy(s.QuarantinedBelow, m.QuarantinedBelow)
	maps.Copy(s.Consumed, m.Consumed)
	for _, rank := range m.Through {
		s.Through[rank] = true
	}
	return s, nil
}
