package budget

import (
	"runtime"
	"slices"
	"testing"
)

// TestReservations: the number of reservations is bounded. It is one while a fetch waits. Refused feeds are woken in
// the order in which they asked. A woken feed that does not reserve wakes the next.
func TestReservations(t *testing.T) {
	b := New(1 << 20)
	var called []int
	var feeds []*Quota
	for i := range 4 {
		feeds = append(feeds, b.Open(func() { called = append(called, i) }))
	}
	limit := spansPerCore * runtime.GOMAXPROCS(0)
	for range limit {
		if !feeds[0].Reserve() {
			t.Fatal("refused below the limit")
		}
	}
	for _, i := range []int{2, 1, 3, 2} {
		if feeds[i].Reserve() {
			t.Fatalf("feed %d holds reservation %d + 1", i, limit)
		}
	}
	feeds[0].Return()
	if !slices.Equal(called, []int{2}) {
		t.Fatalf("called %v, want the feed that came first", called)
	}
	if !feeds[2].Decline() || feeds[2].Decline() {
		t.Fatal("want one reservation to decline")
	}
	b.passOn()
	if !slices.Equal(called, []int{2, 1}) || !feeds[1].Reserve() || feeds[1].Decline() {
		t.Fatalf("called %v, want the next in line, and its reservation", called)
	}
	b.Hurry()
	for range limit - 1 {
		feeds[0].Return()
	}
	if len(called) != 2 {
		t.Fatalf("called %v while a fetch waits and a span is decoded", called)
	}
	feeds[1].Return()
	if !slices.Equal(called, []int{2, 1, 3}) || !feeds[3].Reserve() || feeds[1].Reserve() {
		t.Fatalf("called %v, want one span to be decoded while a fetch waits", called)
	}
	b.Calm()
	feeds[3].Close()
	if !slices.Equal(called, []int{2, 1, 3, 1}) || b.held != 0 {
		t.Fatalf("called %v, %d reservations after all ended", called, b.held)
	}
}
