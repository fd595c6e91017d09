package orchestrator

import (
	"fmt"
	"strings"

	"millrace"
	"millrace/internal/wire"
	"millrace/orchestrator/facts"
	"millrace/orchestrator/ledger"
	"millrace/orchestrator/offers"
	"millrace/orchestrator/planner"
	pb "millrace/proto"
)

// plan seals the next step if the runway has room and the facts are there.
func (m *Machine) plan() ([]facts.Fact, error) {
	if m.s.Attempt == nil || m.s.Ended != nil || m.s.Next >= m.s.Watermark+uint64(m.cfg.Runway) {
		return nil, nil
	}
	if m.selector == nil {
		if err := m.resumeSelector(); err != nil {
			return nil, err
		}
	}
	sel, outcome, err := m.selector.Advance(m.queues)
	if err != nil {
		return nil, m.explain(err)
	}
	switch outcome.Kind {
	case planner.Waiting:
		m.ask(outcome.Source, outcome.Ordinal)
		return nil, nil
	case planner.Finished:
		m.pending = ""
		end := &pb.Ended{Attempt: m.s.Attempt.Attempt, Steps: m.s.Next, Reason: ended(outcome)}
		made := []facts.Fact{{Record: &pb.Record{Fact: &pb.Record_Ended{Ended: end}}}}
		if through := m.newlyThrough(end); len(through) > 0 {
			made = append(made, acknowledged(m.s.Attempt.Attempt, m.s.Watermark, through)) // they leave as soon as they hear of the end
		}
		return made, nil
	}
	m.pending = ""
	return m.seal(&sel)
}

// explain adds to why nothing can be planned what the sources held instead of documents.
func (m *Machine) explain(err error) error {
	for _, q := range m.queues {
		if n, last := q.Bad(); n > 0 {
			err = fmt.Errorf("%w; source %s: %d records could not be decoded, the last is %s at byte %d: %s", err, q.Source(), n, last.ID, last.Offset, last.Reason)
		}
	}
	return err
}

// ended says in words why no step follows, and which sources were left unread.
func ended(o planner.Outcome) string {
	if len(o.Unread) == 0 {
		return string(o.Reason)
	}
	return fmt.Sprintf("%s; not read to their end: %s", o.Reason, strings.Join(o.Unread, ", "))
}

func (m *Machine) resumeSelector() (err error) {
	m.selector, err = planner.NewSelector(m.spec, m.s.Tail().Planner)
	return err
}

// seal places a selection and makes its facts: the plan, and what was quarantined on the way.
func (m *Machine) seal(sel *planner.Selection) ([]facts.Fact, error) {
	plan, err := m.place(sel)
	if err != nil {
		return nil, fmt.Errorf("place step %d: %w", sel.Step, err)
	}
	plan.Stream, plan.Attempt, plan.Term = m.cfg.Stream, m.s.CurrentAttempt(), millrace.Term(m.s.Term)
	after := facts.NewRunState(m.s.Base.Run, m.s.Attempt.Attempt, sel.After, m.live)
	msg := wire.PlanToProto(plan, after.Encode())
	if msg.Delta, err = m.differ.Diff(m.s.Tail().Planner, sel.After, sel.Legs...); err != nil {
		return nil, err
	}
	chain := ledger.Chain(m.s.Chain, m.s.Attempt.Attempt, msg.Content, msg.Placement, msg.Delta)
	sealed := &pb.Sealed{Attempt: m.s.Attempt.Attempt, Step: uint64(sel.Step), Content: msg.Content, Delta: msg.Delta, Chain: chain}
	made := []facts.Fact{{Record: &pb.Record{Fact: &pb.Record_Sealed{Sealed: sealed}}, Plan: msg, At: after}}
	if q := m.rejected(sel); q != nil {
		made = append(made, facts.Fact{Record: &pb.Record{Fact: &pb.Record_Quarantined{Quarantined: q}}})
	}
	return made, m.budget(made)
}

// rejected lists the bad records on a step's way, but for those that an earlier attempt came by.
func (m *Machine) rejected(sel *planner.Selection) *pb.Quarantined {
	var out *pb.Quarantined
	for _, r := range sel.Rejects {
		if uint64(r.Ordinal) < m.s.QuarantinedBelow[m.cfg.Sources[r.Source].Name] {
			continue
		}
		if out == nil {
			out = &pb.Quarantined{Attempt: m.s.Attempt.Attempt, Step: uint64(sel.Step)}
		}
		q := &pb.Quarantine{Source: m.cfg.Sources[r.Source].Name, Id: r.ID.String(), Offset: -1, Reason: r.Reject, Ordinal: uint64(r.Ordinal)}
		if known, ok := m.queues[r.Source].Rejected(r.Ordinal); ok {
			q.Id, q.Offset, q.Reason = known.ID, known.Offset, known.Reason
		}
		out.Samples = append(out.Samples, q)
	}
	return out
}

// budget fails the run where a source has more bad records than its budget takes. It is decided in plan order: the same for everyone.
func (m *Machine) budget(made []facts.Fact) error {
	counts := map[string]uint64{}
	for _, f := range made {
		for _, q := range append(f.GetQuarantined().GetSamples(), m.s.NewlyBad(f.GetMasked().GetMasks())...) {
			counts[q.Source]++
			counted, records := m.records(q.Source, q.Ordinal)
			allowed := m.source(q.Source).Allowed(counted, records)
			if n := m.s.Quarantined[q.Source] + counts[q.Source]; n > allowed {
				cure := millrace.Quarantine{Source: q.Source, Reason: q.Reason}.Cure()
				return millrace.Errorf(millrace.ErrBadSample,
					"source %s: %d records could not be decoded, its quarantine budget takes %d; the last is %s at byte %d: %s: %s",
					q.Source, n, allowed, q.Id, q.Offset, q.Reason, cure)
			}
		}
	}
	return nil
}

// records is how many records the budget is a part of: those of all passes over the source up to the ordinal's, where they are counted.
func (m *Machine) records(source string, ordinal uint64) (counted bool, n uint64) {
	counted = true
	for _, sh := range m.s.Manifests[source].GetShards() {
		n += sh.Count
		counted = counted && sh.Counted
	}
	if !counted {
		return false, ordinal + 1
	}
	if n > 0 {
		n *= ordinal/n + 1
	}
	return counted, n
}

func (m *Machine) source(name string) *Source {
	for i := range m.cfg.Sources {
		if m.cfg.Sources[i].Name == name {
			return &m.cfg.Sources[i]
		}
	}
	return nil
}

// ask asks for more offers of the source that the plan waits for.
func (m *Machine) ask(source int, ordinal millrace.Ordinal) {
	m.pending = fmt.Sprintf("step %d waits for samples of source %s", m.s.Next, m.cfg.Sources[source].Name)
	m.roster.Want(source, m.queues[source].Demand(ordinal))
}

// publish sends a sealed plan to every sidecar and asks ahead for the next.
func (m *Machine) publish(p *pb.Plan) {
	m.midStep(p)
	m.weigh(p)
	m.sendPlans()
	for i := range m.queues {
		cursor := m.s.Tail().Planner.Sources[i].Ordinal
		perStep := (cursor - m.queues[i].First()) / millrace.Ordinal(max(1, p.Step+1-m.s.Watermark))
		m.roster.Want(i, offers.Ahead(cursor, 2*perStep))
	}
}

// sendPlans sends every sidecar the sealed plans that it does not have.
func (m *Machine) sendPlans() {
	if m.s.Attempt != nil {
		m.sidecars.SendPlans(m.s.Attempt.Attempt, m.s.Watermark, m.s.Next, func(step uint64) *pb.Plan { return m.s.Sealed[step].Plan })
	}
}

func (m *Machine) tellEnd() {
	if m.s.Ended != nil {
		m.sidecars.Broadcast(&pb.SidecarOrder{Order: &pb.SidecarOrder_Ended{Ended: m.s.Ended}})
	}
}

// released makes loaders forget the documents that no plan needs any more.
func (m *Machine) released() {
	for i := range m.queues {
		m.roster.Release(i, m.s.Base.Planner.Floor(i))
	}
}
