package sources

import (
	"runtime"
	"slices"
	"testing"
)

// TestTurns: only so many packs are made at a time, one where something is waited for; who was refused is called in turn, and who has
// nothing to make then passes the turn on.
func TestTurns(t *testing.T) {
	b := NewBudget(1 << 20)
	var called []int
	var feeds []*account
	for i := range 4 {
		feeds = append(feeds, b.open(func() { called = append(called, i) }))
	}
	limit := makingsEach * runtime.GOMAXPROCS(0)
	for range limit {
		if !feeds[0].begin() {
			t.Fatal("refused below the limit")
		}
	}
	for _, i := range []int{2, 1, 3, 2} {
		if feeds[i].begin() {
			t.Fatalf("feed %d makes one more than %d", i, limit)
		}
	}
	feeds[0].end()
	if !slices.Equal(called, []int{2}) {
		t.Fatalf("called %v, want the feed that came first", called)
	}
	if !feeds[2].decline() || feeds[2].decline() {
		t.Fatal("want one turn to decline")
	}
	b.callNext()
	if !slices.Equal(called, []int{2, 1}) || !feeds[1].begin() || feeds[1].decline() {
		t.Fatalf("called %v, want the next in line, who makes something of it", called)
	}
	b.Hurry()
	for range limit - 1 {
		feeds[0].end()
	}
	if len(called) != 2 {
		t.Fatalf("called %v while something is waited for and a pack is being made", called)
	}
	feeds[1].end()
	if !slices.Equal(called, []int{2, 1, 3}) || !feeds[3].begin() || feeds[1].begin() {
		t.Fatalf("called %v, want one pack to be made however long something is waited for", called)
	}
	b.Calm()
	feeds[3].close()
	if !slices.Equal(called, []int{2, 1, 3, 1}) || b.making != 0 {
		t.Fatalf("called %v, %d being made after all that ended", called, b.making)
	}
}
