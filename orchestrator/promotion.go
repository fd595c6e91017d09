package orchestrator

import (
	"fmt"
	"strconv"

	"millrace/internal/wire"
	pb "millrace/proto"
)

// Switched observes that a host found a stripe's primary dead or silent and asks the standby, under the standby's term. What is said of
// a lower term than the primary's is old. Under a higher one that nobody holds any more, because that standby was lost meanwhile, the host
// would wait for ever: it takes no lower term again, so that the stripe is given anew.
func (m *Machine) Switched(s *pb.Switched) {
	st := m.stripe(s.Source, s.Stripe)
	switch {
	case st == nil:
		return
	case st.standby.member == nil && st.primary.member != nil && s.Term > st.primary.term && s.Term <= m.s.AssignTerm:
		st.primary, st.from, st.reason = grant{}, s.Step, "its standby of term "+strconv.FormatUint(s.Term, 10)+" was lost"
		m.moved, m.unsettled = true, true
		return
	case st.standby.member == nil || st.standby.term != s.Term:
		return
	}
	if l := st.primary.member; l != nil {
		m.lose(l, s.Reason)
	}
	st.from = s.Step
}

// lose takes a process out. Where somebody stands by for what it held it is fenced: the standby takes over in this turn, and the process
// may be alive and not know.
func (m *Machine) lose(l *member, reason string) {
	delete(m.members, l.name)
	m.lost[l.name] = m.now
	m.moved, m.unsettled = true, true
	followed := false
	for _, st := range m.stripes {
		if st.standby.member == l {
			st.standby = grant{}
		}
		if st.primary.member == l {
			st.primary, st.from, st.reason = grant{}, 0, fmt.Sprintf("%s was lost: %s", l.name, reason)
			followed = followed || st.standby.member != nil
		}
	}
	if followed {
		m.fenced[process{l.name, l.pid}] = true
		m.bye(l, "its stripes were given to others: "+reason)
		m.out = append(m.out, Action{Fenced: &Fenced{Name: l.name, Pid: l.pid}})
	}
}

// gone tells whether a member has been away for longer than it takes to start it again.
func (m *Machine) gone(name string) bool {
	since, ok := m.lost[name]
	if !ok {
		since = m.began
	}
	return m.members[name] == nil && m.now.Sub(since) >= absence
}

// dismiss lets the members go that were asked to leave: what they read has been handed over, or nobody can take it.
func (m *Machine) dismiss() {
	for _, name := range sortedKeys(m.members) {
		if l := m.members[name]; l.leaving {
			m.bye(l, "it was asked to leave, and what it read is in other hands")
			m.lose(l, "it was asked to leave")
		}
	}
}

// assigned carries out a grant. No event came between the decision and this: the member is here.
func (m *Machine) assigned(a *pb.Assigned) {
	st, l := m.stripe(a.Source, a.Stripe), m.members[a.Member]
	m.moved, m.unsettled = true, true
	switch {
	case a.Standby:
		if old := st.standby; old.member != nil && old.member != l {
			m.drop(st, old)
		}
		st.standby = grant{member: l, term: a.Term}
		m.read(st, st.standby, true)
		return
	case st.standby.member == l && st.standby.term == a.Term:
		st.primary, st.standby = grant{member: l, term: a.Term}, grant{}
		m.switches++
		m.order(l, &pb.LoaderOrder{Order: &pb.LoaderOrder_Promote{Promote: &pb.Promote{Source: a.Source, Stripe: a.Stripe, Term: a.Term, Step: a.Step,
			Ordinal: uint64(m.queues[st.source].Missing(st.index))}}})
	default:
		st.primary = grant{member: l, term: a.Term}
		m.read(st, st.primary, false)
	}
	st.from, st.reason = 0, ""
	m.wants[st.source] = max(m.wants[st.source], m.queues[st.source].First()+firstWant)
	m.order(l, &pb.LoaderOrder{Order: &pb.LoaderOrder_Want{Want: &pb.Want{Source: a.Source, Until: uint64(m.wants[st.source])}}})
}

// read has a stripe read, or followed, from the watermark's cursor on.
func (m *Machine) read(st *stripe, g grant, standby bool) {
	src, q := &m.cfg.Sources[st.source], m.queues[st.source]
	order := &pb.ReadFrom{Source: src.Name, Stripe: uint32(st.index), Stripes: uint32(len(src.Loaders)), Term: g.term, Ordinal: uint64(q.First()), Standby: standby}
	if seekPoint, ok := q.SeekPointAt(q.First()); ok {
		order.SeekPoint = wire.SeekPointToProto(seekPoint)
	}
	m.order(g.member, &pb.LoaderOrder{Order: &pb.LoaderOrder_Read{Read: order}})
}

func (m *Machine) drop(st *stripe, g grant) {
	m.order(g.member, &pb.LoaderOrder{Order: &pb.LoaderOrder_Drop{Drop: &pb.Drop{Source: m.cfg.Sources[st.source].Name, Stripe: uint32(st.index), Term: g.term}}})
}
