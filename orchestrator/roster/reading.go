package roster

import (
	"slices"

	"millrace"
	"millrace/internal/wire"
	pb "millrace/proto"
)

// Want asks a source's loaders to offer all ordinals below until.
func (r *Roster) Want(source int, until millrace.Ordinal) {
	if until <= r.wants[source] {
		return
	}
	r.wants[source] = until
	for _, l := range r.stripes.readers(source, false) {
		l.pending.want(source, r.queues[source].Source(), until)
	}
}

// Release makes loaders forget the ordinals of a source below its low-water mark.
func (r *Roster) Release(source int, below millrace.Ordinal) {
	q := r.queues[source]
	if below == q.First() {
		return // they know
	}
	q.Release(below)
	seekPoint := &pb.SeekPoint{}
	if known, ok := q.SeekPointAt(below); ok {
		seekPoint = wire.SeekPointToProto(known)
	}
	for _, l := range r.stripes.readers(source, true) {
		i := l.pending.entry(source, q.Source())
		l.pending.msg.Below[i], l.pending.msg.SeekPoint[i] = uint64(below), seekPoint
	}
}

// Flush sends each loader in one order how far to read, for all sources of the turn.
func (r *Roster) Flush() {
	for _, l := range r.sortedMembers() {
		r.order(l)
	}
}

// pending is the order of a turn to one loader that says how far to read.
type pending struct {
	msg *pb.Reading
	at  map[int]int // by source: its place in the columns
}

// entry returns the place of a source in the columns.
func (p *pending) entry(source int, name string) int {
	if p.msg == nil {
		p.msg, p.at = &pb.Reading{}, map[int]int{}
	}
	i, ok := p.at[source]
	if !ok {
		i, p.at[source] = len(p.at), len(p.at)
		p.msg.Source = append(p.msg.Source, name)
		p.msg.Until, p.msg.Below = append(p.msg.Until, 0), append(p.msg.Below, 0)
		p.msg.SeekPoint = append(p.msg.SeekPoint, &pb.SeekPoint{})
	}
	return i
}

// want asks for offers of all ordinals of a source below until.
func (p *pending) want(source int, name string, until millrace.Ordinal) {
	i := p.entry(source, name)
	p.msg.Until[i] = uint64(until)
}

// take returns the order and begins a new one; nil: it says nothing.
func (p *pending) take() *pb.LoaderOrder {
	if p.msg == nil {
		return nil
	}
	order := &pb.LoaderOrder{Order: &pb.LoaderOrder_Reading{Reading: p.msg}}
	*p = pending{}
	return order
}

// Ordinals says which documents the ordinals of a source are.
type Ordinals struct {
	Piece uint32 // tokens of an ordinal, which is a piece; 0: an ordinal is a whole document
	Eras  string // the bytes of millrace.Eras: which files each epoch reads
}

// Reposition sets a source to an ordinal, with the seek point that a state knows for it. If the offers do not
// reach that ordinal, or have other ordinals, the source is read again from there.
func (r *Roster) Reposition(source int, at millrace.Ordinal, seekPoint millrace.SeekPoint, are Ordinals) {
	q, same := r.queues[source], r.ordinals[source] == are
	r.ordinals[source] = are
	if same && at >= q.First() && at <= q.Next() {
		q.Release(at)
		return
	}
	q.Reset(at)
	if seekPoint != (millrace.SeekPoint{}) {
		q.SeekPoint(seekPoint)
	}
	r.wants[source] = 0
	r.unassign(source)
}

// unassign takes a source's stripes from all members. Decide gives them to the same members again.
func (r *Roster) unassign(source int) {
	r.unsettled = true
	r.formers = slices.DeleteFunc(r.formers, func(f former) bool {
		if f.stripe.source != source {
			return false
		}
		if r.members[f.grant.member.name] == f.grant.member {
			r.drop(f.stripe, f.grant)
		}
		return true
	})
	for _, st := range r.stripes.bySource[source] {
		if st.standby.member != nil {
			r.drop(st, st.standby)
		}
		r.stripes.hold(st, grant{}, grant{})
	}
}

func (r *Roster) drop(st *stripe, g grant) {
	drop := &pb.Drop{Source: st.name, Stripe: uint32(st.index), Term: g.term}
	r.order(g.member, &pb.LoaderOrder{Order: &pb.LoaderOrder_Drop{Drop: drop}})
}
