package feed

import (
	"slices"
	"sort"
)

// edges say where in a feed's spans there is something to do, so that a choice does not look at all of them: they may
// be many and tiny. They are indexes into spans; the feed's mutex guards them.
type edges struct {
	held   int     // all spans before are held
	known  int     // of all spans before the lengths are known
	tail   int     // no span from there on is held
	asking []*span // those that a Fetch waits for, in order
}

// shift follows the release of the first n spans.
func (e *edges) shift(n int) {
	e.held, e.known, e.tail = max(e.held-n, 0), max(e.known-n, 0), max(e.tail-n, 0)
}

// unheld is the first span that is not held; the mutex is held.
func (f *Feed) unheld() int {
	e := &f.edges
	for e.held < len(f.spans) && f.spans[e.held].held {
		e.held++
	}
	return e.held
}

// unknown is the first span whose lengths are not known; known lengths stay known.
func (f *Feed) unknown() int {
	e := &f.edges
	for e.known < len(f.spans) && f.spans[e.known].known {
		e.known++
	}
	return e.known
}

// lastHeld is the index after the last span that is held.
func (f *Feed) lastHeld() int {
	e := &f.edges
	for e.tail > 0 && !f.spans[e.tail-1].held {
		e.tail--
	}
	return e.tail
}

// spansBefore counts the spans that end at or before a position.
func (f *Feed) spansBefore(position uint64) int {
	return sort.Search(len(f.spans), func(i int) bool { return f.spans[i].hi > position })
}

// indexOf is the index of a span that was not released.
func (f *Feed) indexOf(p *span) int { return f.spansBefore(p.lo) }

// ask counts a Fetch that waits for a span's tokens.
func (f *Feed) ask(p *span) {
	if p.demand++; p.demand == 1 {
		i := sort.Search(len(f.edges.asking), func(i int) bool { return f.edges.asking[i].lo > p.lo })
		f.edges.asking = slices.Insert(f.edges.asking, i, p)
	}
}

// unask takes back what ask counted.
func (f *Feed) unask(p *span) {
	if p.demand--; p.demand == 0 {
		f.edges.asking = slices.DeleteFunc(f.edges.asking, func(q *span) bool { return q == p })
	}
}
