package link

import (
	"fmt"
	"sync/atomic"

	"millrace/proto"
	"millrace/sidecar/retrieve"
)

// portion is the rows that one stripe gives to a step. retrieve decides what happens to them. The gathering's loop owns
// all fields except reason.
type portion struct {
	*retrieve.Portion
	key     stripeKey
	indices []int                        // by row: the assignment, in the order of the ordinals
	bad     map[uint64]*proto.Quarantine // by ordinal: documents that could not be decoded

	using, spare *retrieve.Loader // as the directory last named them

	reason atomic.Pointer[reason]
}

// newPortion returns a portion of some assignments of a plan.
func (p *payload) newPortion(key stripeKey, indices []int) *portion {
	documents := make([]uint64, len(indices))
	for k, i := range indices {
		documents[k] = uint64(p.plan.Assignments[i].Ordinal)
	}
	return &portion{Portion: retrieve.New(documents), key: key, indices: indices}
}

// note notes documents that could not be decoded, and returns their ordinals. The finding of a standby that was asked
// beside a loader does not count.
func (x *part) note(samples []*proto.Quarantine) []uint64 {
	documents := make([]uint64, len(samples))
	for k, q := range samples {
		documents[k] = q.Ordinal
		if x.call.purpose == retrieve.Hedge || x.call.purpose == retrieve.Help {
			continue
		}
		if x.of.bad == nil {
			x.of.bad = map[uint64]*proto.Quarantine{}
		}
		x.of.bad[q.Ordinal] = q
	}
	return documents
}

// reason is the reason of a portion's wait.
type reason struct {
	format        string // its first arguments are the source, and the shard of the first missing row
	more          []any
	isTrouble     bool             // more than the time that an answer takes
	asked         *retrieve.Loader // nil: no loader is asked
	source, shard uint32
}

// outlook is the part of a gathering that explain reads. It does not change.
type outlook struct {
	portions []*portion
	absent   string // a source without a loader; empty: there is none
}

// setReason sets the reason of a portion's wait for rows.
func (g *gathering) setReason(p *portion, rows []int, r reason) {
	for _, k := range rows {
		if i := p.indices[k]; g.payload.tokens[i].IsNone() {
			a := &g.payload.plan.Assignments[i]
			r.source, r.shard = a.Source, a.ID.Shard
			p.reason.Store(&r)
			return
		}
	}
}

// publish makes the portions known to explain.
func (g *gathering) publish() {
	o := &outlook{portions: g.portions[:len(g.portions):len(g.portions)]}
	for source := range g.unrouted {
		o.absent = g.sources[source].Name
	}
	g.outlook.Store(o)
}

// explain returns the reason of the wait, for messages. It is safe for concurrent use. Trouble comes before the time
// that an answer takes.
func (g *gathering) explain() awaited {
	o := g.outlook.Load()
	if o == nil {
		return awaited{text: "its samples"}
	}
	if o.absent != "" {
		return awaited{text: "a loader of source " + o.absent + ": none has come yet", source: o.absent}
	}
	var first *reason
	var of *portion
	for _, p := range o.portions {
		r := p.reason.Load()
		if r != nil && (first == nil || r.isTrouble && !first.isTrouble) {
			first, of = r, p
		}
	}
	if first == nil {
		return awaited{text: "its samples"}
	}
	out := awaited{source: of.key.source, shard: g.dir.shardName(first.source, first.shard)}
	out.text = fmt.Sprintf(first.format, append([]any{out.source, out.shard}, first.more...)...)
	if first.asked != nil {
		out.loader, out.address = first.asked.Name, first.asked.Address
	}
	return out
}
