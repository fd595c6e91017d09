package feed

import (
	"slices"
	"sort"
)

// queue holds a feed's spans in order of position, without a gap. It also keeps indexes of the places that need work,
// because spans may be many and tiny. The feed's mutex guards it.
type queue struct {
	spans     []*span
	allHeld   int     // all spans before are held
	allKnown  int     // the lengths of all spans before are known
	noneHeld  int     // no span from there on is held
	requested []*span // a fetch waits for each; in order
}

// push adds a span behind the last.
func (q *queue) push(p *span) { q.spans = append(q.spans, p) }

// insert adds a span behind another one, from which it was cut. Neither is held.
func (q *queue) insert(after, p *span) {
	i := q.endingBefore(after.lo)
	q.spans = slices.Insert(q.spans, i+1, p)
	if q.allKnown > i {
		q.allKnown++
	}
	if q.noneHeld > i {
		q.noneHeld++
	}
	if b := p.block; b != nil {
		b.spans = slices.Insert(b.spans, slices.Index(b.spans, after)+1, p)
	}
}

// popBelow removes the spans that end at or before a position, and hands each to a function.
func (q *queue) popBelow(position uint64, popped func(*span)) (n int) {
	for n < len(q.spans) && q.spans[n].hi <= position {
		popped(q.spans[n])
		n++
	}
	q.spans = slices.Delete(q.spans, 0, n)
	q.allHeld, q.allKnown, q.noneHeld = max(q.allHeld-n, 0), max(q.allKnown-n, 0), max(q.noneHeld-n, 0)
	return n
}

// firstUnheld returns the index of the first span that is not held.
func (q *queue) firstUnheld() int {
	for q.allHeld < len(q.spans) && q.spans[q.allHeld].held {
		q.allHeld++
	}
	return q.allHeld
}

// firstUnknown returns the index of the first span with unknown lengths. Known lengths stay known.
func (q *queue) firstUnknown() int {
	for q.allKnown < len(q.spans) && q.spans[q.allKnown].known {
		q.allKnown++
	}
	return q.allKnown
}

// heldUntil returns the spans up to the last held one.
func (q *queue) heldUntil() []*span {
	for q.noneHeld > 0 && !q.spans[q.noneHeld-1].held {
		q.noneHeld--
	}
	return q.spans[:q.noneHeld]
}

// noteHeld updates the indexes after a span's tokens came into memory.
func (q *queue) noteHeld(p *span) { q.noneHeld = max(q.noneHeld, q.endingBefore(p.lo)+1) }

// noteDropped updates the indexes after a span's tokens left memory.
func (q *queue) noteDropped(p *span) { q.allHeld = min(q.allHeld, q.endingBefore(p.lo)) }

// endingBefore counts the spans that end at or before a position. For the start of a queued span, the count is the
// span's index.
func (q *queue) endingBefore(position uint64) int {
	return sort.Search(len(q.spans), func(i int) bool { return q.spans[i].hi > position })
}

// spanAt returns the span that holds a position, or nil.
func (q *queue) spanAt(position uint64) *span {
	i := q.endingBefore(position)
	if i == len(q.spans) || q.spans[i].lo > position {
		return nil
	}
	return q.spans[i]
}

// request counts a fetch that waits for a span's tokens.
func (q *queue) request(p *span) {
	if p.demand++; p.demand == 1 {
		i := sort.Search(len(q.requested), func(i int) bool { return q.requested[i].lo > p.lo })
		q.requested = slices.Insert(q.requested, i, p)
	}
}

// withdraw undoes request.
func (q *queue) withdraw(p *span) {
	if p.demand--; p.demand == 0 {
		q.requested = slices.DeleteFunc(q.requested, func(other *span) bool { return other == p })
	}
}
