package link

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"millrace"
	"millrace/proto"
)

// portion is the rows that one stripe gives to a step. A row may come from several loaders. Its first copy counts, and
// each later copy must be equal. The gathering's loop owns all fields except reason.
type portion struct {
	key     stripeKey
	indices []int              // into the plan's assignments, in the order of the ordinals
	bad     map[uint64]finding // by ordinal: documents that could not be decoded
	state   state

	using, spare *member         // as the directory last named them
	saw          <-chan struct{} // closed when the directory has changed since

	main  []*part // what the portion waits for; empty: nothing is asked
	late  []*part // of requests to the standby because main is late
	due   int     // rows of main that have not come
	tried bool    // the standby could not read the documents again
	fault *fault  // of the loader, until its standby has been asked for help

	retry  time.Time // while resting: the time of the next try
	lost   []int     // while masking: the rows that the orchestrator is to mask
	reason atomic.Pointer[reason]
}

// state is the state of a portion.
type state uint8

const (
	ready   state = iota // the next action is due
	asking               // a loader was asked
	masking              // the orchestrator is to mask rows
	resting              // until the directory changes or some time has passed
	done
)

// waitsBeside reports whether the portion waits for another part than x. A portion with many rows has several.
func (p *portion) waitsBeside(x *part) bool {
	return slices.ContainsFunc(p.main, func(other *part) bool { return other != x && !other.over })
}

// finding is a document that could not be decoded.
type finding struct {
	sample *proto.Quarantine
	twice  bool // two readings could not decode it
}

// fault is a loader's own fault, for example that its host cannot read.
type fault struct {
	asked  *member
	err    error
	before int // rows that were missing
}

// todo lists the rows that are missing, by the action that they need.
type todo struct {
	plain []int // ask
	again []int // one reading failed: ask for another
	lost  []int // two readings failed: have them masked
}

// due returns the rows of the first action that is due.
func (t todo) due() []int {
	switch {
	case len(t.plain) > 0:
		return t.plain
	case len(t.again) > 0:
		return t.again
	}
	return t.lost
}

// missing lists the rows that are neither here nor masked. The caller holds the lock of the masks.
func (p *portion) missing(in *payload, m *masks) (t todo) {
	for _, i := range p.indices {
		a := &in.plan.Assignments[i]
		if !in.tokens[i].IsNone() || m.hides(p.key.source, a) {
			continue
		}
		switch f, bad := p.bad[uint64(a.Ordinal)]; {
		case !bad:
			t.plain = append(t.plain, i)
		case !f.twice:
			t.again = append(t.again, i)
		default:
			t.lost = append(t.lost, i)
		}
	}
	return t
}

// convict notes documents that could not be decoded. It reports whether one of the rows belongs to such a document.
func (p *portion) convict(plan *millrace.Plan, samples []*proto.Quarantine) (isOurs bool) {
	if p.bad == nil {
		p.bad = map[uint64]finding{}
	}
	for _, q := range samples {
		_, before := p.bad[q.Ordinal]
		p.bad[q.Ordinal] = finding{sample: q, twice: before}
		isOurs = isOurs || slices.ContainsFunc(p.indices, func(i int) bool {
			return uint64(plan.Assignments[i].Ordinal) == q.Ordinal
		})
	}
	return isOurs
}

// reason is the reason of a portion's wait.
type reason struct {
	format        string // its first arguments are the source, and the shard of the first missing row
	more          []any
	isTrouble     bool    // more than the time that an answer takes
	asked         *member // nil: no loader is asked
	source, shard uint32
}

// outlook is the part of a gathering that explain reads. It does not change.
type outlook struct {
	portions []*portion
	absent   string // a source without a loader; empty: there is none
}

// because sets the reason of a portion's wait for rows.
func (g *gathering) because(p *portion, which []int, r reason) {
	for _, i := range which {
		if g.payload.tokens[i].IsNone() {
			a := &g.payload.plan.Assignments[i]
			r.source, r.shard = a.Source, a.ID.Shard
			p.reason.Store(&r)
			return
		}
	}
}

// tell makes the portions known to explain.
func (g *gathering) tell() {
	o := &outlook{portions: g.portions[:len(g.portions):len(g.portions)]}
	for source := range g.unrouted {
		o.absent = g.sources[source].Name
	}
	g.told.Store(o)
}

// explain returns the reason of the wait, for messages. It is safe for concurrent use. Trouble comes before the time
// that an answer takes.
func (g *gathering) explain() awaited {
	o := g.told.Load()
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
		out.loader, out.address = first.asked.name, first.asked.address
	}
	return out
}
