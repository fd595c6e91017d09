package orchestrator

import (
	"fmt"

	"millrace"
	"millrace/orchestrator/planner"
	"millrace/proto"
)

// stripeWidth is how many consecutive ordinals lie in one stripe; package sources deals them the same way.
const stripeWidth = 32

// queue merges the stripes' offers of one source into one sequence of facts in ordinal order, and keeps them from the watermark's
// cursor on. Arrival order changes nothing: what is not yet there is Pending.
type queue struct {
	source  string
	stripes uint64
	first   millrace.Ordinal      // ordinal of metas[0]
	metas   []millrace.SampleMeta // without gaps
	rejects map[millrace.Ordinal]*proto.Quarantine
	waiting [][]millrace.SampleMeta // per stripe, offered but not yet next
	anchors []millrace.Anchor       // ascending, the newest at or below `first` and all after it
	ended   bool
	end     millrace.Ordinal // where the source ends
}

func newQueue(source string, stripes int) *queue {
	return &queue{source: source, stripes: uint64(stripes), rejects: map[millrace.Ordinal]*proto.Quarantine{}, waiting: make([][]millrace.SampleMeta, stripes)}
}

// reset forgets everything and expects ordinals from `from` on.
func (q *queue) reset(from millrace.Ordinal) {
	*q = *newQueue(q.source, int(q.stripes))
	q.first = from
}

// next is the first ordinal that is not known.
func (q *queue) next() millrace.Ordinal { return q.first + millrace.Ordinal(len(q.metas)) }

func (q *queue) stripe(o millrace.Ordinal) uint64 { return uint64(o) / stripeWidth % q.stripes }

// add takes a loader's offers. A fact that is known already must be equal: a source that says otherwise has changed under the run.
func (q *queue) add(m *proto.Offers) error {
	if uint64(m.Stripe) >= q.stripes {
		return fmt.Errorf("source %s: offer of stripe %d of %d", q.source, m.Stripe, q.stripes)
	}
	for i, o := range m.Ordinal {
		meta := millrace.SampleMeta{Ordinal: millrace.Ordinal(o), Epoch: millrace.Epoch(m.Epoch[i]),
			ID: millrace.SampleID{Shard: m.Shard[i], Record: m.Record[i]}, Lengths: millrace.Lengths{Tokens: m.Tokens[i]}}
		if len(m.Bytes) > i {
			meta.Lengths.Bytes = m.Bytes[i]
		}
		if err := q.take(meta, uint64(m.Stripe), m.Rejects); err != nil {
			return err
		}
	}
	for _, a := range m.Anchors {
		q.anchor(millrace.Anchor{Ordinal: millrace.Ordinal(a.Ordinal), Epoch: millrace.Epoch(a.Epoch), EpochStart: millrace.Ordinal(a.EpochStart), Shard: a.Shard, Block: a.Block, Record: a.Record})
	}
	if m.End {
		q.ended, q.end = true, millrace.Ordinal(m.EndOrdinal)
	}
	q.merge()
	return nil
}

func (q *queue) take(meta millrace.SampleMeta, stripe uint64, rejects []*proto.Quarantine) error {
	for _, r := range rejects {
		if r.Ordinal == uint64(meta.Ordinal) {
			meta.Reject = r.Reason
			if meta.Ordinal >= q.first {
				q.rejects[meta.Ordinal] = r
			}
		}
	}
	if meta.Ordinal < q.next() {
		if meta.Ordinal >= q.first && q.metas[meta.Ordinal-q.first] != meta {
			return fmt.Errorf("source %s: ordinal %d was %+v and is now %+v: a file changed during the run; restore it, or start a new run: %w",
				q.source, meta.Ordinal, q.metas[meta.Ordinal-q.first], meta, millrace.ErrMismatch)
		}
		return nil
	}
	w := q.waiting[stripe]
	if len(w) == 0 || w[len(w)-1].Ordinal < meta.Ordinal {
		q.waiting[stripe] = append(w, meta)
	}
	return nil
}

// merge moves what is next in line.
func (q *queue) merge() {
	for {
		s := q.stripe(q.next())
		w := q.waiting[s]
		if len(w) == 0 || w[0].Ordinal != q.next() {
			return
		}
		q.metas = append(q.metas, w[0])
		q.waiting[s] = w[1:]
	}
}

func (q *queue) anchor(a millrace.Anchor) {
	at := len(q.anchors)
	for at > 0 && q.anchors[at-1].Ordinal >= a.Ordinal {
		if q.anchors[at-1] == a {
			return
		}
		at--
	}
	q.anchors = append(q.anchors[:at], append([]millrace.Anchor{a}, q.anchors[at:]...)...)
}

// anchorAt is the newest anchor at or below an ordinal.
func (q *queue) anchorAt(o millrace.Ordinal) (millrace.Anchor, bool) {
	for i := len(q.anchors) - 1; i >= 0; i-- {
		if q.anchors[i].Ordinal <= o {
			return q.anchors[i], true
		}
	}
	return millrace.Anchor{}, false
}

// release forgets what lies below the watermark's cursor.
func (q *queue) release(below millrace.Ordinal) {
	n := min(int(below-min(q.first, below)), len(q.metas))
	if n > 0 {
		for o := q.first; o < q.first+millrace.Ordinal(n); o++ {
			delete(q.rejects, o)
		}
		q.metas = append(q.metas[:0:0], q.metas[n:]...)
		q.first += millrace.Ordinal(n)
	}
	for len(q.anchors) > 1 && q.anchors[1].Ordinal <= q.first {
		q.anchors = q.anchors[1:]
	}
}

// queues is the planner's view of all sources, in name order.
type queues []*queue

// Peek implements planner.Offers.
func (qs queues) Peek(source int, o millrace.Ordinal) (millrace.SampleMeta, planner.Availability) {
	q := qs[source]
	switch {
	case q.ended && o >= q.end:
		return millrace.SampleMeta{}, planner.Ended
	case o >= q.first && o < q.next():
		return q.metas[o-q.first], planner.Ready
	default:
		return millrace.SampleMeta{}, planner.Pending
	}
}

// Anchor implements planner.Anchors.
func (qs queues) Anchor(source int, at millrace.Ordinal) millrace.Anchor {
	a, _ := qs[source].anchorAt(at)
	return a
}

var (
	_ planner.Offers  = queues(nil)
	_ planner.Anchors = queues(nil)
)
