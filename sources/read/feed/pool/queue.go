package pool

import "container/heap"

// Class is the kind of a feed's most urgent work. A lower class goes first.
type Class uint8

// The classes of work.
const (
	Requested Class = iota // a fetch waits for tokens
	Wanted                 // a plan may wait for lengths
	Begun                  // parts of a span whose other parts are being made
	Ahead                  // tokens before any plan asks for them
)

// Urgency orders the feeds that may have work.
type Urgency struct {
	Class Class
	Lag   uint32 // within a class, the feed with the larger one goes first; 0 to MaxLag
}

// MaxLag is the lag of a feed that has no part of the stretch that it should have.
const MaxLag = 1000

// queue is a heap of the members that may have work. Among equals, the one that was queued first comes first.
type queue []*Member

var _ heap.Interface = (*queue)(nil)

func (q queue) Len() int { return len(q) }

func (q queue) Less(i, j int) bool {
	a, b := q[i], q[j]
	switch {
	case a.urgency.Class != b.urgency.Class:
		return a.urgency.Class < b.urgency.Class
	case a.urgency.Lag != b.urgency.Lag:
		return a.urgency.Lag > b.urgency.Lag
	}
	return a.turn < b.turn
}

func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].at, q[j].at = i, j
}

// Push implements heap.Interface.
func (q *queue) Push(x any) {
	m := x.(*Member)
	m.at = len(*q)
	*q = append(*q, m)
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	last := len(*q) - 1
	m := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	m.at = unqueued
	return m
}
