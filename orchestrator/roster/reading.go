package roster

import (
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
		r.order(l, r.want(source))
	}
}

func (r *Roster) want(source int) *pb.LoaderOrder {
	want := &pb.Want{Source: r.cfg.Sources[source].Name, Until: uint64(r.wants[source])}
	return &pb.LoaderOrder{Order: &pb.LoaderOrder_Want{Want: want}}
}

// Release makes loaders forget the ordinals of a source below its low-water mark.
func (r *Roster) Release(source int, below millrace.Ordinal) {
	q := r.queues[source]
	if below == q.First() {
		return // they know
	}
	q.Release(below)
	release := &pb.Release{Source: q.Source(), Below: uint64(below)}
	if seekPoint, ok := q.SeekPointAt(below); ok {
		release.SeekPoint = wire.SeekPointToProto(seekPoint)
	}
	for _, l := range r.stripes.readers(source, true) {
		r.order(l, &pb.LoaderOrder{Order: &pb.LoaderOrder_Release{Release: release}})
	}
}

// Reposition makes a source stand at an ordinal, with the seek point that a state knows for it. Ordinals are pieces of
// so many tokens, or whole documents if piece is 0. If the offers do not reach that ordinal, or have other ordinals,
// the source is read again from there.
func (r *Roster) Reposition(source int, at millrace.Ordinal, seekPoint millrace.SeekPoint, piece uint32) {
	q, same := r.queues[source], r.pieces[source] == piece
	r.pieces[source] = piece
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
	r.moved, r.unsettled = true, true
	for _, st := range r.stripes.bySource[source] {
		if st.standby.member != nil {
			r.drop(st, st.standby)
		}
		st.primary, st.standby = grant{}, grant{}
	}
}

func (r *Roster) drop(st *stripe, g grant) {
	drop := &pb.Drop{Source: st.name, Stripe: uint32(st.index), Term: g.term}
	r.order(g.member, &pb.LoaderOrder{Order: &pb.LoaderOrder_Drop{Drop: drop}})
}
