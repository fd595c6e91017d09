package loader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pbuf "google.golang.org/protobuf/proto"

	"millrace"
	"millrace/internal/arena"
	"millrace/internal/arena/arenatest"
	"millrace/internal/wire"
	"millrace/proto"
	"millrace/sources"
	"millrace/sources/read/feed"
	"millrace/sources/read/order"
)

// lengths returns n records of varied lengths.
func lengths(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprint(1+i*i%97))
	}
	return out
}

// direct reads the same stripe without a loader.
func (w *world) direct(stripe order.Stripe, reqs []feed.Request) (offers []offered, tokens map[uint32][]uint32) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	spec, err := w.spec("web")
	if err != nil {
		w.t.Fatal(err)
	}
	src, err := sources.Open(ctx, spec, sources.OpenOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	defer src.Close()
	f := feed.New(src, feed.Position{}, stripe, feed.Config{})
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }() // waited for below
	f.Want(1 << 40)
	for end := false; !end; {
		b, err := f.Next(ctx)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, o := range b.Offers {
			x := offered{uint64(o.Ordinal), o.ID.Record, o.Lengths.Tokens, ""}
			if o.Quarantine != nil {
				x.bad = o.Quarantine.ID + ": " + o.Quarantine.Reason
			}
			offers = append(offers, x)
		}
		end = b.End
	}
	tokens = map[uint32][]uint32{}
	err = f.Fetch(ctx, reqs, func(i int, t []uint32, _ string) error {
		tokens[uint32(i)] = slices.Clone(t)
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	cancel()
	<-done
	return offers, tokens
}

func request(term uint64, reqs []feed.Request) *proto.FetchRequest {
	return &proto.FetchRequest{Fence: &proto.Fence{Stream: "train"}, Part: []*proto.FetchPart{partOf(0, term, reqs)}}
}

// partOf asks one stripe of source web.
func partOf(stripe uint32, term uint64, reqs []feed.Request) *proto.FetchPart {
	m := &proto.FetchPart{Source: "web", Stripe: stripe, Term: term}
	for _, r := range reqs {
		m.Ordinal = append(m.Ordinal, uint64(r.Ordinal))
		m.Offset, m.Length = append(m.Offset, r.Offset), append(m.Length, r.Length)
	}
	return m
}

// TestALoaderOffersAndServesItsFeed: a loader passes on the offers and tokens of its feed, and offers no more than
// wanted.
func TestALoaderOffersAndServesItsFeed(t *testing.T) {
	w := newWorld(t, append(lengths(400), "bad", "0", "bad")...)
	x := w.start()
	m := x.open()
	if records, counted := wire.CountRecords(m); wire.CountShards(m) != 1 || records != 403 || !counted ||
		m.Source != "web" {
		t.Fatalf("manifest %v", m)
	}
	x.read(order.Stripe{}, 5, 0, 100)
	first, _ := x.offers(5, 100)
	x.quiet()
	x.want(50) // a lower ordinal changes nothing
	x.want(1000)
	rest, end := x.offers(5, 303)
	var reqs []feed.Request
	got := append(first, rest...)
	for _, o := range got {
		if o.tokens > 3 {
			reqs = append(reqs, feed.Request{Ordinal: millrace.Ordinal(o.ordinal), Length: o.tokens},
				feed.Request{Ordinal: millrace.Ordinal(o.ordinal), Offset: 1, Length: 2})
		}
	}
	slices.Reverse(reqs)
	want, tokens := w.direct(order.Stripe{}, reqs)
	if !end || !reflect.DeepEqual(got, want) {
		t.Fatalf("end %v, offers\n%v\nwant\n%v", end, got, want)
	}
	if !slices.ContainsFunc(got, func(o offered) bool { return o.bad != "" && o.tokens == 0 }) {
		t.Error("the bad records were not rejected")
	}
	f, err := w.fetch(request(5, reqs))
	if err != nil || !reflect.DeepEqual(f.rows, tokens) {
		t.Fatalf("%v: %d rows, want %d equal ones", err, len(f.rows), len(tokens))
	}
	if f, err = w.fetch(request(5, nil)); err != nil || len(f.rows) != 0 {
		t.Errorf("no requests: %v, %d rows", err, len(f.rows))
	}
	x.release(403)
	x.read(order.Stripe{Index: 1, Of: 3}, 6, 0, 1000)
	want, _ = w.direct(order.Stripe{Index: 1, Of: 3}, nil)
	if got, end := x.offers(6, len(want)); !end || !reflect.DeepEqual(got, want) {
		t.Errorf("stripe 1 of 3: %v", got)
	}
	if w.terms.Load() != 2 {
		t.Errorf("%d terms were reported", w.terms.Load())
	}
}

// TestRepliesAreBounded: no reply comes near the 4 MiB of gRPC, however many and however long the rows are.
func TestRepliesAreBounded(t *testing.T) {
	lines := []string{"700000"}
	for range 60 {
		lines = append(lines, "10000")
	}
	w := newWorld(t, lines...)
	w.clock = still{} // on a running clock, slow rows are sent early
	x := w.start()
	x.open()
	x.read(order.Stripe{}, 5, 0, 1000)
	got, _ := x.offers(5, len(lines))
	var reqs []feed.Request
	for _, o := range got {
		reqs = append(reqs, feed.Request{Ordinal: millrace.Ordinal(o.ordinal), Length: o.tokens})
	}
	_, tokens := w.direct(order.Stripe{}, reqs)
	f, err := w.fetch(request(5, reqs))
	if err != nil || !reflect.DeepEqual(f.rows, tokens) {
		t.Fatalf("%v: %d rows of %d", err, len(f.rows), len(tokens))
	}
	if f.largest > 5*replyTokens || f.replies < 5 || f.replies > 9 {
		t.Errorf("%d replies, the largest has %d bytes", f.replies, f.largest)
	}
}

func TestWrongFetchesAreRefused(t *testing.T) {
	lines := append(lengths(60), "late")
	w := newWorld(t, lines...)
	x := w.start()
	x.open()
	x.read(order.Stripe{}, 5, 0, 1000)
	got, _ := x.offers(5, 61)
	late := slices.IndexFunc(got, func(o offered) bool { return o.record == 60 })
	good := []feed.Request{{Ordinal: 30, Length: 1}}
	otherStripe := func(r *proto.FetchRequest) { r.Part[0].Stripe = 1 }
	otherSource := func(r *proto.FetchRequest) { r.Part[0].Source = "code" }
	noOffsets := func(r *proto.FetchRequest) { r.Part[0].Offset = nil }
	long := []feed.Request{{Ordinal: 30, Length: 5000}}
	beyond := []feed.Request{{Ordinal: 61, Length: 1}}
	bad := []feed.Request{{Ordinal: millrace.Ordinal(late), Length: 7}}
	for _, c := range []struct {
		name string
		req  *proto.FetchRequest
		edit func(*proto.FetchRequest)
		want error
		says string
	}{
		{"older term", request(4, good), nil, millrace.ErrFenced, "under term 4"},
		{"newer term", request(6, good), nil, millrace.ErrFenced, "under term 6"},
		{"other stripe", request(5, good), otherStripe, millrace.ErrFenced, "stripe 1"},
		{"other source", request(5, good), otherSource, millrace.ErrFenced, "source code"},
		{"columns differ", request(5, good), noOffsets, millrace.ErrInvalid, "0 offsets"},
		{"beyond the document", request(5, long), nil, millrace.ErrMismatch, "tokens 0 to 5000"},
		{"beyond the stream", request(5, beyond), nil, millrace.ErrInvalid, "the stream ends at 61"},
		{"bad only now", request(5, bad), nil, millrace.ErrBadSample, "a.jsonl#60"},
	} {
		if c.edit != nil {
			c.edit(c.req)
		}
		_, err := w.fetch(c.req)
		if err = wire.FromStatus(err); !errors.Is(err, c.want) || !strings.Contains(fmt.Sprint(err), c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	x.release(20)
	eventually(t, func() bool {
		_, err := w.fetch(request(5, []feed.Request{{Ordinal: 3, Length: 1}}))
		return errors.Is(wire.FromStatus(err), millrace.ErrInvalid) && strings.Contains(err.Error(), "released")
	})
	if _, err := w.fetch(request(5, good)); err != nil {
		t.Errorf("a document that was not released: %v", err)
	}
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the condition is still false at the end of the wait")
		}
	}
}

// TestAnOrchestratorThatIsBackIsToldAgain: a restarted orchestrator gets the offers again without another read. If it
// goes back behind a release, the records are read again.
func TestAnOrchestratorThatIsBackIsToldAgain(t *testing.T) {
	w := newWorld(t, append(lengths(300), "bad")...)
	x := w.start()
	manifest := x.open()
	x.read(order.Stripe{}, 5, 0, 200)
	before, _ := x.offers(5, 200)
	req := []feed.Request{{Ordinal: 150, Length: 1}}
	eventually(t, func() bool { _, err := w.fetch(request(5, req)); return err == nil && w.format.reads.Load() >= 301 })
	reads := w.format.reads.Load()

	w.orchestrate()
	x = w.orch.next(t)
	if again := x.open(); !pbuf.Equal(again, manifest) {
		t.Fatalf("manifest %v became %v", manifest, again)
	}
	x.read(order.Stripe{}, 6, 0, 250)
	again, _ := x.offers(6, 250)
	if !reflect.DeepEqual(again[:200], before) {
		t.Error("the repeated offers differ")
	}
	if got := w.format.reads.Load(); got != reads {
		t.Errorf("%d records were read for it", got-reads)
	}
	if _, err := w.fetch(request(5, req)); !errors.Is(wire.FromStatus(err), millrace.ErrFenced) {
		t.Errorf("the old term: %v", err)
	}
	if _, err := w.fetch(request(6, req)); err != nil {
		t.Errorf("the new term: %v", err)
	}

	x.release(120)
	w.orchestrate()
	x = w.orch.next(t)
	x.open()
	x.read(order.Stripe{}, 7, 120, 250)
	kept, _ := x.offers(7, 50)
	if kept[0].ordinal > 120 || !reflect.DeepEqual(kept, again[kept[0].ordinal:kept[0].ordinal+uint64(len(kept))]) {
		t.Errorf("after a release it begins with %v", kept[0])
	}
	x.read(order.Stripe{}, 8, 10, 250)
	anew, _ := x.offers(8, 240)
	if !reflect.DeepEqual(anew, again[10:]) {
		t.Error("the offers of the new reading differ")
	}
	if w.format.reads.Load() == reads {
		t.Error("no record was read again")
	}
}

// TestAReadingThatIsReplacedIsNoFault: an attempt may begin before the end of the one before, so readings are replaced.
func TestAReadingThatIsReplacedIsNoFault(t *testing.T) {
	w := newWorld(t, lengths(100)...)
	x := w.start()
	x.open()
	want, _ := w.direct(order.Stripe{}, nil)
	for term := uint64(1); term <= 60; term++ {
		if term%2 == 1 {
			x.read(order.Stripe{Index: 0, Of: 2}, term, 0, 100)
			x.offers(term, 1)
			continue
		}
		x.read(order.Stripe{}, term, 0, 100)
		if got, _ := x.offers(term, 100); !reflect.DeepEqual(got, want) {
			t.Fatalf("term %d: the offers differ", term)
		}
	}
}

// TestOneOpeningServesEveryOrchestrator: a restarted orchestrator gets the result of an indexing that is under way.
func TestOneOpeningServesEveryOrchestrator(t *testing.T) {
	w := newWorld(t, lengths(50)...)
	w.format.gate = make(chan struct{})
	x := w.start()
	x.order(1, &proto.LoaderOrder{Order: &proto.LoaderOrder_Open{Open: &proto.OpenSource{Source: "web"}}})
	eventually(t, func() bool { return w.format.index.Load() == 1 })
	w.orchestrate()
	x = w.orch.next(t)
	x.order(1, &proto.LoaderOrder{Order: &proto.LoaderOrder_Open{Open: &proto.OpenSource{Source: "web"}}})
	select {
	case e := <-x.events:
		if o := e.GetOpening(); o.GetSource() != "web" || o.GetTotal() == 0 {
			t.Fatalf("instead of progress came %v", e)
		}
	case <-time.After(patience):
		t.Fatal("the new orchestrator gets no progress of the index")
	}
	close(w.format.gate)
	e := x.event()
	if records, _ := wire.CountRecords(e.GetManifest()); records != 50 {
		t.Fatalf("got %v", e)
	}
	if n := w.format.index.Load(); n != 1 {
		t.Errorf("it was indexed %d times", n)
	}
}

// TestAFatalSourceIsToldToEveryOrchestrator: the loader reports a source that cannot go on, and does not end.
func TestAFatalSourceIsToldToEveryOrchestrator(t *testing.T) {
	w := newWorld(t, append(lengths(40), "damaged")...)
	x := w.start()
	x.open()
	for life := uint64(1); life <= 3; life++ {
		x.read(order.Stripe{}, life, 0, 1000)
		for {
			e := x.event()
			if f := e.GetFatal(); f != nil {
				if f.Source != "web" || !strings.Contains(f.Reason, "the disk is gone") {
					t.Fatalf("told %v", f)
				}
				break
			}
		}
		w.orchestrate()
		x = w.orch.next(t)
		x.open()
	}
	x.order(1, &proto.LoaderOrder{Order: &proto.LoaderOrder_Open{Open: &proto.OpenSource{Source: "books"}}})
	if f := x.event().GetFatal(); f.GetSource() != "books" || !strings.Contains(f.GetReason(), "not in the mixture") {
		t.Errorf("an unknown source: %v", f)
	}
}

// TestOrdersOfAnOldTermAreRefused: the loader leaves an orchestrator with an old term and looks for its successor.
func TestOrdersOfAnOldTermAreRefused(t *testing.T) {
	w := newWorld(t, lengths(40)...)
	x := w.start()
	x.reading(3, 10, 0)
	x.order(2, &proto.LoaderOrder{Order: &proto.LoaderOrder_Bye{Bye: &proto.Bye{Reason: "from the past"}}})
	next := w.orch.next(t)
	if _, ok := <-x.events; ok {
		t.Error("the fenced stream goes on")
	}
	next.order(3, &proto.LoaderOrder{Order: &proto.LoaderOrder_Open{Open: &proto.OpenSource{Source: "web"}}})
	if next.event().GetManifest() == nil {
		t.Error("the loader does not go on")
	}
}

func TestALoaderThatIsReplacedLeaves(t *testing.T) {
	w := newWorld(t, lengths(40)...)
	x := w.start()
	x.open()
	x.read(order.Stripe{}, 1, 0, 40)
	x.offers(1, 40)
	x.order(1, &proto.LoaderOrder{
		Order: &proto.LoaderOrder_Bye{Bye: &proto.Bye{Reason: "another process took over as loader-0"}},
	})
	eventually(t, func() bool { _, open := <-x.events; return !open })
	if err := w.left(); err != nil {
		t.Fatalf("it ended with %v", err)
	}
}

// TestAPartThatFailsDoesNotStopTheOthers: the reply has the rows of the other stripes, and the reason of each failed
// part.
func TestAPartThatFailsDoesNotStopTheOthers(t *testing.T) {
	w := newWorld(t, lengths(400)...)
	x := w.start()
	x.open()
	of := func(k uint32) order.Stripe { return order.Stripe{Index: k, Of: 3} }
	req := &proto.FetchRequest{}
	want := map[uint32][]uint32{}
	for k := range uint32(3) {
		x.read(of(k), 5+uint64(k), 0, 1000)
		offers, _ := w.direct(of(k), nil)
		x.offers(5+uint64(k), len(offers))
		reqs := requestsFrom(offers, 0)
		_, tokens := w.direct(of(k), reqs)
		term := 5 + uint64(k)
		if k == 1 {
			term = 99
		}
		rows := 0
		for _, part := range req.Part {
			rows += len(part.Ordinal)
		}
		for i, row := range tokens {
			if k != 1 {
				want[uint32(rows)+i] = row
			}
		}
		req.Part = append(req.Part, partOf(k, term, reqs))
	}
	f, err := w.fetch(req)
	if err != nil || !reflect.DeepEqual(f.rows, want) {
		t.Errorf("%v: %d rows, want %d equal ones", err, len(f.rows), len(want))
	}
	if len(f.failed) != 1 || !errors.Is(f.failed[1], millrace.ErrFenced) {
		t.Errorf("failed: %v", f.failed)
	}
}

// TestTokensGoToTheArena that a request names. If the loader cannot use it, the replies carry the tokens.
func TestTokensGoToTheArena(t *testing.T) {
	w := newWorld(t, lengths(400)...)
	space := &counting{}
	w.arenas = space
	x := w.start()
	x.open()
	x.read(order.Stripe{}, 5, 0, 1000)
	offers, _ := w.direct(order.Stripe{}, nil)
	x.offers(5, len(offers))
	reqs := requestsFrom(offers, 0)
	_, want := w.direct(order.Stripe{}, reqs)
	size := 0
	for _, r := range reqs {
		size += int(r.Length) + 1
	}
	room := arena.Room(size, len(reqs))
	for _, c := range []struct {
		name     string
		size     int
		isClosed bool
		inArena  bool
	}{
		{"with room", room, false, true}, {"too small", room - 1, false, false}, {"closed", room, true, false},
	} {
		a, err := space.Create(c.size)
		if err != nil {
			t.Fatal(err)
		}
		if c.isClosed {
			a.Close()
		}
		req := request(5, reqs)
		req.Arena = a.Name
		f, err := w.fetch(req)
		if err != nil || (f.carried == 0) != c.inArena {
			t.Fatalf("%s: %v, and the replies carry %d bytes", c.name, err, f.carried)
		}
		if c.inArena {
			at, marks := 0, arena.MarksOf(a.Tokens, size, len(reqs))
			for i, r := range reqs {
				row := want[uint32(i)]
				f.rows[uint32(i)] = a.Tokens[at : at+len(row)]
				if !marks.Has(i, row) {
					t.Errorf("row %d is not marked", i)
				}
				at += int(r.Length) + 1
			}
		}
		if !reflect.DeepEqual(f.rows, want) {
			t.Errorf("%s: other rows", c.name)
		}
	}
	// The connection of each fetch has ended.
	eventually(t, func() bool { return space.mapped.Load() == 0 && space.opened.Load() == 2 })
}

// counting counts the arenas that the loader maps.
type counting struct {
	arenatest.Memory
	opened, mapped atomic.Int64
}

func (c *counting) Open(name string) (*arena.Arena, error) {
	a, err := c.Memory.Open(name)
	if err != nil {
		return nil, err
	}
	c.opened.Add(1)
	c.mapped.Add(1)
	return arena.New(name, a.Tokens, func() error { c.mapped.Add(-1); return a.Close() }), nil
}

// TestAnArenaIsForgottenAfterItsLastUse: a request still writes to it when another one names it as gone.
func TestAnArenaIsForgottenAfterItsLastUse(t *testing.T) {
	space := &counting{}
	made, err := space.Create(10)
	if err != nil {
		t.Fatal(err)
	}
	a := &arenas{space: space, log: slog.New(slog.DiscardHandler), open: map[string]*mapped{}}
	tokens, done := a.use(made.Name)
	_, doneToo := a.use(made.Name)
	a.forget([]string{made.Name, "another"})
	done()
	if len(tokens) != 10 || space.mapped.Load() != 1 {
		t.Errorf("%d tokens, %d arenas are mapped", len(tokens), space.mapped.Load())
	}
	doneToo()
	if space.mapped.Load() != 0 {
		t.Error("it is still mapped")
	}
	_, done = a.use(made.Name)
	a.end()
	done()
	if tokens, _ := a.use(made.Name); tokens != nil || space.mapped.Load() != 0 {
		t.Error("it is used after the end of the connection")
	}
}
