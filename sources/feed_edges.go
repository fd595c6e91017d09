package sources

import (
	"slices"
	"sort"
)

// edges say where in a feed's packs there is something to do, so that a choice does not look at all of them: they may be many and tiny.
// They are indexes into packs; the feed's mutex guards them.
type edges struct {
	held   int     // all packs before are held
	known  int     // of all packs before the lengths are known
	tail   int     // no pack from there on is held
	asking []*pack // those that a Fetch waits for, in order
}

// shift follows the release of the first n packs.
func (e *edges) shift(n int) {
	e.held, e.known, e.tail = max(e.held-n, 0), max(e.known-n, 0), max(e.tail-n, 0)
}

// unheld is the first pack that is not held; the mutex is held.
func (f *Feed) unheld() int {
	e := &f.edges
	for e.held < len(f.packs) && f.packs[e.held].held {
		e.held++
	}
	return e.held
}

// unknown is the first pack whose lengths are not known; known lengths stay known.
func (f *Feed) unknown() int {
	e := &f.edges
	for e.known < len(f.packs) && f.packs[e.known].known {
		e.known++
	}
	return e.known
}

// lastHeld is the index after the last pack that is held.
func (f *Feed) lastHeld() int {
	e := &f.edges
	for e.tail > 0 && !f.packs[e.tail-1].held {
		e.tail--
	}
	return e.tail
}

// packsBefore counts the packs that end at or before a seat.
func (f *Feed) packsBefore(seat uint64) int {
	return sort.Search(len(f.packs), func(i int) bool { return f.packs[i].hi > seat })
}

// indexOf is the index of a pack that was not released.
func (f *Feed) indexOf(p *pack) int { return f.packsBefore(p.lo) }

// ask counts a Fetch that waits for a pack's tokens.
func (f *Feed) ask(p *pack) {
	if p.demand++; p.demand == 1 {
		i := sort.Search(len(f.edges.asking), func(i int) bool { return f.edges.asking[i].lo > p.lo })
		f.edges.asking = slices.Insert(f.edges.asking, i, p)
	}
}

// unask takes back what ask counted.
func (f *Feed) unask(p *pack) {
	if p.demand--; p.demand == 0 {
		f.edges.asking = slices.DeleteFunc(f.edges.asking, func(q *pack) bool { return q == p })
	}
}
