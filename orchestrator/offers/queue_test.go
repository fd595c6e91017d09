package offers

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"millrace"
	"millrace/orchestrator/planner"
)

func meta(o uint64) millrace.SampleMeta {
	m := millrace.SampleMeta{
		Ordinal: millrace.Ordinal(o),
		ID:      millrace.SampleID{Record: o * 7},
		Lengths: millrace.Lengths{Tokens: uint32(o%50) + 1},
	}
	if o%17 == 3 {
		m.Rejected = true
	}
	return m
}

// TestArrivalOrderChangesNothing: the order, the cuts and the repetition of arrivals do not change the queue.
func TestArrivalOrderChangesNothing(t *testing.T) {
	const n, stripes = 500, 3
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		q := NewQueue("web", stripes)
		var parts [stripes][]Batch
		for o := uint64(0); o < n; o++ {
			s := o / millrace.StripeRun % stripes
			if k := len(parts[s]); k == 0 || rng.IntN(9) == 0 {
				parts[s] = append(parts[s],
					Batch{Stripe: uint32(s), Rejects: map[millrace.Ordinal]millrace.Quarantine{}})
			}
			b := &parts[s][len(parts[s])-1]
			b.Metas = append(b.Metas, meta(o))
			if meta(o).Rejected {
				b.Rejects[millrace.Ordinal(o)] = millrace.Quarantine{ID: "x", Reason: "bad"}
			}
		}
		var sent [stripes]int
		released := millrace.Ordinal(0)
		for range 4000 {
			s := rng.IntN(stripes)
			if sent[s] < len(parts[s]) {
				if err := q.Add(parts[s][sent[s]]); err != nil {
					t.Fatal(err)
				}
				if rng.IntN(4) > 0 {
					sent[s]++ // else it is offered again
				}
			}
			if rng.IntN(20) == 0 && q.Next() > released {
				released += millrace.Ordinal(rng.Uint64N(uint64(q.Next() - released)))
				q.Release(released)
			}
		}
		if q.Next() != n || q.First() != released {
			t.Fatalf("seed %d: it knows %d … %d, want %d … %d", seed, q.First(), q.Next(), released, n)
		}
		for o := released; o < n; o++ {
			got, a := Queues{q}.Peek(0, o)
			if a != planner.Ready || got != meta(uint64(o)) {
				t.Fatalf("seed %d: ordinal %d is %+v (%d)", seed, o, got, a)
			}
			if _, ok := q.Rejected(o); ok != got.Rejected {
				t.Fatalf("seed %d: ordinal %d: rejected %v", seed, o, ok)
			}
		}
	}
}

// TestReleaseAheadOfOffers: after a restart, a new queue may release ordinals that were never offered to it. Loaders
// then never offer them.
func TestReleaseAheadOfOffers(t *testing.T) {
	const stripes = 2
	q := NewQueue("web", stripes)
	q.Reset(5)
	if err := q.Add(Batch{Stripe: 1, Metas: []millrace.SampleMeta{meta(32), meta(33), meta(63)}}); err != nil {
		t.Fatal(err)
	}
	q.Release(33)
	if q.First() != 33 || q.Next() != 34 {
		t.Fatalf("it knows %d … %d, want 33 … 34", q.First(), q.Next())
	}
	for o := uint64(30); o < 64; o++ {
		if err := q.Add(
			Batch{Stripe: uint32(o / millrace.StripeRun % stripes), Metas: []millrace.SampleMeta{meta(o)}},
		); err != nil {
			t.Fatal(err)
		}
	}
	if got, a := (Queues{q}).Peek(0, 33); a != planner.Ready || got != meta(33) {
		t.Errorf("ordinal 33 is %+v, %v", got, a)
	}
}

func TestAChangedFactIsRefused(t *testing.T) {
	q := NewQueue("web", 1)
	if err := q.Add(Batch{Metas: []millrace.SampleMeta{meta(0), meta(1)}, Ended: true, End: 2}); err != nil {
		t.Fatal(err)
	}
	other := meta(1)
	other.Lengths.Tokens++
	if err := q.Add(Batch{Metas: []millrace.SampleMeta{other}}); !errors.Is(err, millrace.ErrMismatch) {
		t.Fatalf("got %v", err)
	}
	if _, a := (Queues{q}).Peek(0, 2); a != planner.Ended {
		t.Fatalf("an ordinal after the end is %d, want Ended", a)
	}
	if err := q.Add(Batch{Stripe: 1}); err == nil {
		t.Fatal("an offer of an unknown stripe was accepted")
	}
}

// TestASealedDocumentKeepsItsLength: a piece of a sealed step is offered as bad, and then by another loader with the
// length of its document. The plans show only that the document goes on after the piece.
func TestASealedDocumentKeepsItsLength(t *testing.T) {
	q := NewQueue("web", 1)
	q.Recall(func(o millrace.Ordinal) ([]millrace.Segment, error) {
		if o != 1 {
			return nil, nil
		}
		id := meta(uint64(o)).ID
		return []millrace.Segment{
			{ID: id, Length: 32, More: true, Untrained: 3},
			{ID: id, Offset: 32, Length: 32, More: true, Untrained: 32},
		}, nil
	})
	offer := func(ordinal uint64, tokens uint32, isBad bool) {
		t.Helper()
		m := meta(ordinal)
		m.Lengths.Tokens, m.Rejected = tokens, isBad
		b := Batch{Metas: []millrace.SampleMeta{m}}
		if isBad {
			b.Rejects = map[millrace.Ordinal]millrace.Quarantine{m.Ordinal: {Reason: "bad"}}
		}
		if err := q.Add(b); err != nil {
			t.Fatal(err)
		}
	}
	q.SetRejected(2, millrace.Quarantine{Reason: "it was bad"})
	offer(0, 0, true) // in no step
	offer(1, 0, true) // in a step
	offer(1, 70, false)
	offer(2, 70, false) // quarantined before
	offer(2, 70, false)
	for o, want := range []struct {
		tokens uint32
		bad    string
	}{{0, "bad"}, {65, ""}, {0, "it was bad"}} {
		got, _ := (Queues{q}).Peek(0, millrace.Ordinal(o))
		why, isBad := q.Rejected(millrace.Ordinal(o))
		if got.Lengths.Tokens != want.tokens || got.Rejected != isBad || why.Reason != want.bad {
			t.Errorf("ordinal %d is %+v, rejected as %q", o, got, why.Reason)
		}
	}
	for _, seg := range []millrace.Segment{
		{Length: 32, More: true, Untrained: 3}, {Offset: 32, Length: 32, More: true, Untrained: 32},
		{Length: 64, More: true, Untrained: 35},
	} {
		want := seg.Untrained
		if seg.Ordinal, seg.Untrained = 1, 0; !isCounted(q, seg, want) {
			t.Errorf("%+v has not its %d untrained labels of before", seg, want)
		}
	}
}

func isCounted(q *Queue, seg millrace.Segment, want uint32) bool {
	n, ok := (Queues{q}).Untrained(&seg)
	return ok && n == want
}

func TestSeekPoints(t *testing.T) {
	q := NewQueue("web", 1)
	for _, o := range []millrace.Ordinal{40, 0, 90, 40} {
		q.SeekPoint(millrace.SeekPoint{Ordinal: o, Block: uint32(o)})
	}
	for _, c := range []struct{ at, want millrace.Ordinal }{{0, 0}, {39, 0}, {40, 40}, {89, 40}, {1000, 90}} {
		if got := (Queues{q}).SeekPoint(0, c.at); got.Ordinal != c.want {
			t.Errorf("at %d: seek point %d, want %d", c.at, got.Ordinal, c.want)
		}
	}
}

// TestDemandFollowsTheNumberOfSources: a plan that waits asks a thousand sources together for about as many documents
// as ten. Within a step, the span doubles.
func TestDemandFollowsTheNumberOfSources(t *testing.T) {
	q := NewQueue("web", 1)
	for _, c := range []struct {
		sources int
		at      millrace.Ordinal
		want    millrace.Ordinal
	}{{1, 0, 256}, {8, 0, 256}, {16, 0, 128}, {1000, 0, 8}, {1000, 8, 16}, {1000, 16, 32}, {1, 1000, 2000}} {
		if got := q.Demand(c.at, c.sources); got != c.want {
			t.Errorf("%d sources, waiting for ordinal %d: asks below %d, want %d", c.sources, c.at, got, c.want)
		}
	}
}

// TestBadRecordsExplain: if the sources hold no document, the first bad record of each comes first. It is the least by
// ordinal. Any other error of planning comes before them.
func TestBadRecordsExplain(t *testing.T) {
	q := NewQueue("web", 1)
	b := Batch{Rejects: map[millrace.Ordinal]millrace.Quarantine{}}
	for o := range uint64(3) {
		bad := meta(o)
		bad.Rejected = true
		b.Metas = append(b.Metas, bad)
		b.Rejects[millrace.Ordinal(o)] = millrace.Quarantine{ID: fmt.Sprintf("a#%d", o), Reason: "broken"}
	}
	if err := q.Add(b); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{&planner.EmptyError{}, &planner.ExhaustedError{Source: "web", Empty: true}} {
		got := Queues{q}.Explain(err)
		want := "source web: 3 records could not be decoded; the first is a#0 at byte 0: broken: "
		if !strings.HasPrefix(got.Error(), want) || !errors.Is(got, err) {
			t.Errorf("got %q, want %q first", got, want)
		}
	}
	got := Queues{q}.Explain(errors.New("other")).Error()
	if !strings.HasPrefix(got, "other; source web: 3 records") {
		t.Errorf("got %q", got)
	}
}
