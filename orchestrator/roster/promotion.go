package roster

import (
	"fmt"

	"millrace/internal/wire"
	"millrace/orchestrator/offers"
	pb "millrace/proto"
)

// Switched observes that a host found a stripe's primary dead or silent and asks the standby, under the standby's term.
// assigned is the highest assignment term of the journal.
//
// A report with a lower term than the primary's is old. A report may name a higher term without a holder, because that
// standby was lost meanwhile. That host takes no lower term again and would wait for ever, so the stripe is assigned
// again.
//
// It returns the session of the loader that is lost for it; nil: none is.
func (r *Roster) Switched(s *pb.Switched, assigned uint64) (lost Session) {
	st := r.stripes.get(s.Source, s.Stripe)
	if st == nil {
		return nil
	}
	r.stripes.hold(st, st.primary, st.standby) // the host is sent again the holder of the stripe
	switch {
	case st.standby.member == nil && st.primary.member != nil && s.Term > st.primary.term && s.Term <= assigned:
		r.stripes.hold(st, grant{}, grant{})
		st.from, st.reason = s.Step, fmt.Sprintf("its standby of term %d was lost", s.Term)
		r.unsettled = true
		return nil
	case st.standby.member == nil || st.standby.term != s.Term:
		return nil
	}
	if l := st.primary.member; l != nil {
		lost = l.session
		r.lose(l, s.Reason)
	}
	st.from = s.Step
	return lost
}

// Apply carries out an assignment that is durable. No event comes between Decide and Apply, so the member is there.
func (r *Roster) Apply(a *pb.Assigned) {
	st, l := r.stripes.get(a.Source, a.Stripe), r.members[a.Member]
	r.unsettled = true
	switch {
	case a.Standby:
		if old := st.standby; old.member != nil && old.member != l {
			r.drop(st, old)
		}
		r.stripes.hold(st, st.primary, grant{member: l, term: a.Term})
		r.read(st, st.standby, true)
		return
	case st.standby.member == l && st.standby.term == a.Term:
		if from := st.primary; from.member != nil && !from.member.leaving {
			r.formers = append(r.formers, former{st, from, r.now})
		} else {
			r.switches++
		}
		r.stripes.hold(st, grant{member: l, term: a.Term}, grant{})
		promote := &pb.Promote{Source: a.Source, Stripe: a.Stripe, Term: a.Term, Step: a.Step,
			Ordinal: uint64(r.queues[st.source].KnownBelow(st.index))}
		r.order(l, &pb.LoaderOrder{Order: &pb.LoaderOrder_Promote{Promote: promote}})
	default:
		r.stripes.hold(st, grant{member: l, term: a.Term}, st.standby)
		r.read(st, st.primary, false)
	}
	if st.from, st.reason = 0, ""; !l.hello.Standby {
		r.stripes.own(st, l.name)
	}
	r.wants[st.source] = max(r.wants[st.source], offers.Ahead(r.queues[st.source].First(), 0, len(r.queues)))
	l.pending.want(st.source, st.name, r.wants[st.source])
}

// read orders a member to read a stripe, or to follow it, from the watermark's cursor on.
func (r *Roster) read(st *stripe, g grant, standby bool) {
	src, q := &r.cfg.Sources[st.source], r.queues[st.source]
	order := &pb.ReadFrom{
		Source:  src.Name,
		Stripe:  uint32(st.index),
		Stripes: uint32(src.Stripes),
		Term:    g.term,
		Ordinal: uint64(q.First()),
		Standby: standby,

		PieceTokens: r.ordinals[st.source].Piece,
		Eras:        []byte(r.ordinals[st.source].Eras),
	}
	if seekPoint, ok := q.SeekPointAt(q.First()); ok {
		order.SeekPoint = wire.SeekPointToProto(seekPoint)
	}
	r.order(g.member, &pb.LoaderOrder{Order: &pb.LoaderOrder_Read{Read: order}})
}
