package orchestrator

import (
	"cmp"
	"slices"
	"time"

	"millrace"
	"millrace/orchestrator/facts"
	pb "millrace/proto"
)

// absence is how long a stripe without a standby waits for the process that held it, before another reads it.
const absence = time.Second

// stripe is a part of a source: who reads it, and who could at once.
type stripe struct {
	source, index    int
	home             string // the member that reads it where nothing happened
	primary, standby grant
	// Of the loss that has to be answered with the next primary.
	from   uint64 // the step that it takes effect at; 0 is the first that is not sealed
	reason string
}

// grant is a stripe in the hands of a process, under a term that nobody else has of it. A standby's is higher than the primary's.
type grant struct {
	member   *member // nil: nobody
	term     uint64
	standing bool // of a standby: it said that it could take over at once
}

func newStripes(sources []Source) (out []*stripe) {
	for i := range sources {
		for index, home := range sources[i].Loaders {
			out = append(out, &stripe{source: i, index: index, home: home})
		}
	}
	return out
}

// stripe is nil where the run has no such stripe.
func (m *Machine) stripe(source string, index uint32) *stripe {
	return m.byName[facts.Stripe{Source: source, Index: index}]
}

// holds counts the stripes that a member is primary of.
func (m *Machine) holds(l *member) (n int) {
	for _, st := range m.stripes {
		if st.primary.member == l {
			n++
		}
	}
	return n
}

// free tells whether a member has nothing of its own to read: it is nobody's home, or others hold all that it is the home of.
func (m *Machine) free(l *member) bool {
	for _, st := range m.stripes {
		if st.home == l.name && (st.primary.member == nil || st.primary.member == l) {
			return false
		}
	}
	return true
}

// assign decides who reads what: first a primary for every stripe that has none, then standbys. None where all have what can be had.
func (m *Machine) assign() []facts.Fact {
	if !m.unsettled {
		return nil
	}
	m.openings()
	if m.pinned() {
		if made := m.primaries(); len(made) > 0 {
			return made
		}
		if made := m.standbys(); len(made) > 0 {
			return made
		}
	}
	m.unsettled = false
	m.dismiss()
	return nil
}

func (m *Machine) primaries() (made []facts.Fact) {
	term := m.s.AssignTerm
	for _, st := range m.stripes {
		if st.primary.member != nil && !st.primary.member.leaving {
			continue
		}
		a := m.assignment(st)
		a.Step, a.Reason = m.s.Next, st.reason
		if st.from > 0 {
			a.Step = st.from
		}
		if st.standby.member != nil {
			a.Member, a.Term = st.standby.member.name, st.standby.term
		} else if l := m.heir(st); l != nil {
			term++
			a.Member, a.Term = l.name, term
		} else {
			continue
		}
		made = append(made, assigned(a))
	}
	return made
}

// heir is who reads a stripe that nobody stands by for: the process that held it, or its home, for which it waits a moment; else whoever
// has nothing of its own to read.
func (m *Machine) heir(st *stripe) *member {
	source, going := m.cfg.Sources[st.source].Name, st.primary.member
	for _, name := range []string{m.holder(st), st.home} {
		l := m.members[name]
		switch {
		case l != nil && l.leaving, l == nil && (going != nil || m.gone(name)):
		case l != nil && l.opened[source]:
			return l
		case going == nil:
			return nil // it is about to come, or opens the source
		}
	}
	return m.least(source, func(l *member) bool { return l != going && m.free(l) }, m.holds)
}

// holder is the member that read a stripe last, under this `up`; its home where nobody did.
func (m *Machine) holder(st *stripe) string {
	if h := m.s.Holders[facts.Stripe{Source: m.cfg.Sources[st.source].Name, Index: uint32(st.index)}]; h != nil && h.Up == m.cfg.Up {
		return h.Member
	}
	return st.home
}

// least is the member with the least load of those that have opened a source and may be given more.
func (m *Machine) least(source string, may func(*member) bool, load func(*member) int) (best *member) {
	for _, name := range sortedKeys(m.members) {
		if l := m.members[name]; l.opened[source] && !l.leaving && may(l) && (best == nil || load(l) < load(best)) {
			best = l
		}
	}
	return best
}

// standbys grants every stripe that is read a standby on a member that reads nothing. Where losses have left none, a shadow that reads
// something already stands by for what it does not read, and a home for what a shadow reads of it; they are moved once there is one.
func (m *Machine) standbys() (made []facts.Fact) {
	held, stands := map[*member]int{}, map[*member]int{}
	for _, st := range m.stripes {
		held[st.primary.member]++
		stands[st.standby.member]++
	}
	free := map[*member]bool{}
	for _, l := range m.members {
		free[l] = held[l] == 0 && m.free(l)
	}
	term := m.s.AssignTerm
	for _, st := range m.stripes {
		if st.primary.member == nil {
			continue
		}
		now, valid := st.standby.member, st.standby.member != nil && st.standby.term > st.primary.term
		if valid && held[now] == 0 {
			continue
		}
		source, load := m.cfg.Sources[st.source].Name, func(l *member) int { return stands[l] }
		l := m.least(source, func(l *member) bool { return free[l] }, load)
		switch {
		case l == nil && valid:
			continue
		case now != nil && (l == nil || held[now] == 0):
			l = now // what it follows already it follows best
		case l == nil:
			l = m.least(source, func(l *member) bool {
				return held[l] > 0 && l != st.primary.member && (l.name == st.home || !m.home(l.name))
			}, load)
		}
		if l == nil {
			continue
		}
		stands[now]--
		stands[l]++
		term++
		a := m.assignment(st)
		a.Member, a.Term, a.Standby, a.Step, a.Reason = l.name, term, true, m.s.Next, "stands by for "+st.primary.member.name
		made = append(made, assigned(a))
	}
	return made
}

func (m *Machine) assignment(st *stripe) *pb.Assigned {
	return &pb.Assigned{Source: m.cfg.Sources[st.source].Name, Stripe: uint32(st.index), Up: m.cfg.Up}
}

func assigned(a *pb.Assigned) facts.Fact {
	return facts.Fact{Record: &pb.Record{Fact: &pb.Record_Assigned{Assigned: a}}}
}

// serving lists the members that read a source, and with standbys those that follow it, each once, by name.
func (m *Machine) serving(source int, standbys bool) (out []*member) {
	for _, st := range m.of[source] {
		for _, l := range []*member{st.primary.member, st.standby.member} {
			if l != nil && (l == st.primary.member || standbys) && !slices.Contains(out, l) {
				out = append(out, l)
			}
		}
	}
	slices.SortFunc(out, func(a, b *member) int { return cmp.Compare(a.name, b.name) })
	return out
}

// reposition makes the queues stand at a newly opened attempt's state. A source that has to go back, or far ahead, is read anew.
func (m *Machine) reposition() {
	base := m.s.Planner(len(m.cfg.Sources))
	for i, q := range m.queues {
		at := base.Floor(i)
		if at >= q.First() && at <= q.Next() {
			q.Release(at)
			continue
		}
		q.Reset(at)
		if a := base.Sources[i].SeekPoint; a != (millrace.SeekPoint{}) {
			q.SeekPoint(a)
		}
		m.wants[i] = 0
		m.anew(i)
	}
}

// anew takes a source out of all hands, to be given again to those that held it.
func (m *Machine) anew(source int) {
	m.moved, m.unsettled = true, true
	for _, st := range m.of[source] {
		if st.standby.member != nil {
			m.drop(st, st.standby)
		}
		st.primary, st.standby = grant{}, grant{}
	}
}
