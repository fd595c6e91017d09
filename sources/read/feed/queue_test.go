package feed

import (
	"math/rand/v2"
	"slices"
	"testing"

	"millrace"
	"millrace/sources/read/budget"
	"millrace/sources/read/feed/decode"
	"millrace/sources/read/feed/pool"
	"millrace/sources/read/order"
)

// TestQueueIndexes: after random changes, every index of the queue equals the result of a walk over all spans.
func TestQueueIndexes(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	q := &queue{}
	end := uint64(0)
	for range 3000 {
		switch p := anySpan(rnd, q); {
		case p == nil || rnd.IntN(4) == 0:
			q.push(&span{lo: end, hi: end + 1 + rnd.Uint64N(5)})
			end = q.spans[len(q.spans)-1].hi
		case rnd.IntN(8) == 0:
			q.popBelow(p.lo, func(gone *span) { gone.gone = true })
		case p.held:
			p.held = false
			q.noteDropped(p)
		default:
			p.held, p.known = true, true
			q.noteHeld(p)
		}
		unheld := func(p *span) bool { return !p.held }
		unknown := func(p *span) bool { return !p.known }
		if got, want := q.firstUnheld(), firstOf(q, unheld); got != want {
			t.Fatalf("first unheld span is %d, want %d", got, want)
		}
		if got, want := q.firstUnknown(), firstOf(q, unknown); got != want {
			t.Fatalf("first unknown span is %d, want %d", got, want)
		}
		last := len(q.spans)
		for last > 0 && !q.spans[last-1].held {
			last--
		}
		if got := len(q.heldUntil()); got != last {
			t.Fatalf("the last held span is before %d, want %d", got, last)
		}
		at := rnd.Uint64N(end + 2)
		i := slices.IndexFunc(q.spans, func(p *span) bool { return p.lo <= at && at < p.hi })
		if got := q.spanAt(at); i < 0 && got != nil || i >= 0 && got != q.spans[i] {
			t.Fatalf("span at %d is %+v, want number %d", at, got, i)
		}
	}
}

func anySpan(rnd *rand.Rand, q *queue) *span {
	if len(q.spans) == 0 {
		return nil
	}
	return q.spans[rnd.IntN(len(q.spans))]
}

func firstOf(q *queue, is func(*span) bool) int {
	if i := slices.IndexFunc(q.spans, is); i >= 0 {
		return i
	}
	return len(q.spans)
}

// TestQueueRequests: requested spans are in order of position, each once, until the last fetch withdraws.
func TestQueueRequests(t *testing.T) {
	q := &queue{}
	for i := range uint64(4) {
		q.push(&span{lo: i, hi: i + 1})
	}
	for _, i := range []int{2, 0, 2, 3} {
		q.request(q.spans[i])
	}
	q.withdraw(q.spans[2])
	q.withdraw(q.spans[3])
	if want := []*span{q.spans[0], q.spans[2]}; !slices.Equal(q.requested, want) {
		t.Fatalf("requested %v, want the spans 0 and 2", q.requested)
	}
}

// TestClearReturnsEveryScan: a feed that ends closes its scans, also the replaced scan of an action that never ran.
func TestClearReturnsEveryScan(t *testing.T) {
	c := corpus{}
	c.add("a.jsonl", "one", "two")
	a := newChooser(fixture{shuffle: millrace.Blocks, limit: 100}.open(t, c.write(t)), order.Stripe{Of: 1}, newPool(1))
	near, far, replaced := &scan{}, &scan{}, &scan{Scan: decode.NewScan(0, 1)}
	a.blocks.near, a.blocks.far = near, far
	a.maker.ready = []action{&readText{textRead: textRead{reader: a.blocks, scan: near, replaced: replaced}}}
	if got := a.clear(); !slices.Equal(got, []*scan{near, far, replaced}) {
		t.Fatalf("%d scans are closed, want 3", len(got))
	}
}

func newPool(size int) *pool.Pool {
	return pool.New(size, nil, func(large *budget.Large) *decode.Decoder { return decode.New(func() {}, nil, large) })
}
