package link

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	pb "google.golang.org/protobuf/proto"

	"millrace"
	"millrace/internal/wire"
	"millrace/proto"
)

// bulk is a loader that serves any stripe, with many rows in a reply.
type bulk struct {
	proto.UnimplementedLoaderServer
	requests chan int // the encoded size of each request
}

func newBulk(w *world, address string, o ...grpc.ServerOption) *bulk {
	b, server := &bulk{requests: make(chan int, 1000)}, grpc.NewServer(o...)
	proto.RegisterLoaderServer(server, b)
	serve(w.t, w.net, server, address)
	w.t.Cleanup(server.Stop)
	return b
}

// Fetch implements proto.LoaderServer.
func (b *bulk) Fetch(req *proto.FetchRequest, stream proto.Loader_FetchServer) error {
	b.requests <- pb.Size(req)
	out, row := &proto.FetchReply{}, uint32(0)
	for _, part := range req.Part {
		for i, ordinal := range part.Ordinal {
			for t := range part.Length[i] {
				one := []uint32{token(0, ordinal, part.Offset[i]+t)}
				out.Tokens = wire.AppendIDs(out.Tokens, one, true)
			}
			out.Row, out.Count = append(out.Row, row), append(out.Count, part.Length[i])
			wire.SetWide(out, true)
			if row++; len(out.Row) == 50_000 {
				if err := stream.Send(out); err != nil {
					return err
				}
				out = &proto.FetchReply{}
			}
		}
	}
	out.Last = true
	return stream.Send(out)
}

func (b *bulk) sizes() (out []int) {
	for len(b.requests) > 0 {
		out = append(out, <-b.requests)
	}
	return out
}

// striped is a plan of source web with n segments, in runs of a stripe.
func striped(n int) *millrace.Plan {
	p := &millrace.Plan{Stream: millrace.Train, Attempt: 1, Ranks: 1, Microbatches: 1}
	for i := range n {
		s := millrace.Segment{Ordinal: 1<<40 + millrace.Ordinal(i/3)*millrace.StripeRun, Length: 1}
		s.Offset = uint32(i % 3)
		p.Assignments = append(p.Assignments, millrace.Assignment{Segment: s})
	}
	return p
}

// TestAStepOfAnySizeIsFetched: with a million segments of one stripe and with thousands of stripes, no message comes
// near the limit of gRPC, and the number of requests follows the bytes.
func TestAStepOfAnySizeIsFetched(t *testing.T) {
	for _, c := range []struct {
		name              string
		segments, stripes int
		most              int // requests
	}{
		{"a million segments", 1_100_000, 1, 25},
		{"five thousand stripes", 15_000, 5000, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, x := newWorld(t, 1)
			x.welcome("web")
			b := newBulk(w, "l1")
			var stripes []*proto.LoaderStripe
			for k := range uint32(c.stripes) {
				stripes = append(stripes, stripe("web", k, uint32(c.stripes), 4, "l1"))
			}
			x.directory(stripes...)
			eventually(t, func() bool { return w.link.dir.served("web") == c.stripes })
			p := striped(c.segments)
			got, err := w.fetch(p)
			if err != nil {
				t.Fatal(err)
			}
			verify(t, p, got, false)
			sizes := b.sizes()
			if len(sizes) > c.most || slices.Max(sizes) > 1<<20 {
				t.Errorf("requests of %v bytes", sizes)
			}
		})
	}
}

// TestAMessageThatIsTooLargeIsFinal: the run ends with the reason, and the fetch is not repeated for ever.
func TestAMessageThatIsTooLargeIsFinal(t *testing.T) {
	w, x := newWorld(t, 1)
	x.welcome("web")
	newBulk(w, "l1", grpc.MaxRecvMsgSize(1000))
	x.directory(stripe("web", 0, 1, 4, "l1"))
	eventually(t, func() bool { return w.link.dir.served("web") == 1 })
	_, err := w.fetch(striped(1000))
	if !errors.Is(err, millrace.ErrInvalid) || !strings.Contains(err.Error(), "larger than") {
		t.Fatalf("got %v", err)
	}
	if f := x.event().GetFatal(); f.GetReason() != err.Error() {
		t.Errorf("the orchestrator was told %v", f)
	}
}

// quartet is source web in four stripes: the loader l1 serves all, the standbys l2 and l3 follow two each.
func quartet(t *testing.T) (w *world, x *session, l1, l2, l3 *store) {
	w, x = newWorld(t, 1)
	x.welcome("web")
	l1, l2, l3 = newStore(w, "l1", 0, 4), newStore(w, "l2", 0, 5), newStore(w, "l3", 0, 5)
	x.directory(fourStripes("l1", 4, "l2", "l3")...)
	eventually(t, func() bool { return w.link.dir.served("web") == 4 })
	return w, x, l1, l2, l3
}

func fourStripes(primary string, term uint64, standbys ...string) (out []*proto.LoaderStripe) {
	for k := range uint32(4) {
		s := stripe("web", k, 4, term, primary)
		if len(standbys) > 0 {
			name := standbys[k/2]
			s.Standby = &proto.Standby{Term: term + 1, Address: name, Name: name}
		}
		out = append(out, s)
	}
	return out
}

// TestALoaderIsAskedOnceAStep for all its stripes.
func TestALoaderIsAskedOnceAStep(t *testing.T) {
	w, _, l1, _, _ := quartet(t)
	p := striped(40)
	payload, err := w.fetch(p)
	if err != nil {
		t.Fatal(err)
	}
	verify(t, p, payload, false)
	if n := l1.calls.Load(); n != 1 || len(l1.requests()) != 4 {
		t.Errorf("%d requests with %d parts", n, len(l1.requests()))
	}
}

// TestADeadLoadersStripesGoToTheirStandbys: each standby gets one request, for the missing rows of its stripes alone.
func TestADeadLoadersStripesGoToTheirStandbys(t *testing.T) {
	w, x, l1, l2, l3 := quartet(t)
	l1.set(func() { // it dies in its third stripe
		l1.fault = func(answered int) error {
			if len(l1.requests()) < 3 {
				return nil
			}
			return gone(4)(answered)
		}
	})
	p := striped(40)
	payload, err := w.fetch(p)
	if err != nil {
		t.Fatal(err)
	}
	verify(t, p, payload, false)
	if n := l2.calls.Load(); n != 0 {
		t.Errorf("the standby of complete stripes got %d requests", n)
	}
	asked, whole := l3.requests(), l1.requests()
	if n := l3.calls.Load(); n != 1 || len(asked) != 2 || !slices.Equal(asked[0], whole[2][4:]) {
		t.Errorf("of %v the standby was asked for %v in %d requests", whole[2:], asked, n)
	}
	for range 2 { // only the stripes whose rows were missing
		if s := x.event().GetSwitched(); s.GetStripe() < 2 || s.Term != 5 {
			t.Errorf("the orchestrator was told %v", s)
		}
	}
}

// TestAStripeThatFailsDoesNotStopTheOthers: its standby sends its rows, and the loader stays the loader.
func TestAStripeThatFailsDoesNotStopTheOthers(t *testing.T) {
	w, _, l1, l2, l3 := quartet(t)
	l1.set(func() {
		l1.fault = func(int) error {
			if len(l1.requests()) == 2 {
				return errors.New("read a.jsonl: input/output error")
			}
			return nil
		}
	})
	p := striped(40)
	payload, err := w.fetch(p)
	if err != nil {
		t.Fatal(err)
	}
	verify(t, p, payload, false)
	if l1.calls.Load() != 1 || l2.calls.Load() != 1 || l3.calls.Load() != 0 || !l2.reqs[0].Hedge {
		t.Errorf("%d, %d and %d requests", l1.calls.Load(), l2.calls.Load(), l3.calls.Load())
	}
	if using, _ := w.link.dir.lookup(stripeKey{"web", 1}); using.Name != "l1" {
		t.Errorf("%v is asked now", using)
	}
}

// TestAStripeThatMovesIsAskedElsewhere: the directory gives one stripe to another loader, while the first one does not
// answer. The rows of the other stripes are not asked again.
func TestAStripeThatMovesIsAskedElsewhere(t *testing.T) {
	w, x, l1, l2, _ := quartet(t)
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	l1.set(func() { // it answers all but the last stripe
		l1.fault = func(int) error { return hang(len(l1.requests()) == 4, over) }
	})
	p := striped(40)
	got := make(chan fetched, 1)
	go func() { // read below
		payload, err := w.fetch(p)
		got <- fetched{payload, err}
	}()
	eventually(t, func() bool { return len(l1.requests()) == 4 })
	stripes := fourStripes("l1", 4)
	stripes[3] = stripe("web", 3, 4, 5, "l2")
	x.directory(stripes...)
	f := <-got
	if f.err != nil {
		t.Fatal(f.err)
	}
	verify(t, p, f.payload, false)
	if n := len(l2.requests()); l1.calls.Load() != 1 || n != 1 {
		t.Errorf("the loader got %d requests, the next one %d parts", l1.calls.Load(), n)
	}
}

// TestAnArenaThatMayBeWrittenIsNotUsedAgain: the loader was given up for one stripe, and still works on the request. A
// later request has another arena and names the first one. Without such a request an arena is used again.
func TestAnArenaThatMayBeWrittenIsNotUsedAgain(t *testing.T) {
	w, x, l1, _, _ := quartet(t)
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	fetch := func() {
		t.Helper()
		p := striped(40)
		payload, err := w.fetch(p)
		if err != nil {
			t.Fatal(err)
		}
		verify(t, p, payload, false) // it also releases the payload
	}
	fetch()
	fetch()
	if a := l1.arenas; a[0] == "" || a[0] != a[1] || len(l1.gone) > 0 {
		t.Fatalf("the arenas are %v, and %v are gone", a, l1.gone)
	}
	l1.set(func() { l1.fault = func(int) error { return hang(len(l1.requests()) == 12, over) } })
	moves := make(chan struct{})
	go func() { // ends when the stripe is asked; waited for below
		defer close(moves)
		for len(l1.requests()) < 12 {
			time.Sleep(time.Millisecond)
		}
		stripes := fourStripes("l1", 4)
		stripes[3] = stripe("web", 3, 4, 5, "l2")
		x.directory(stripes...)
	}()
	fetch()
	<-moves
	fetch()
	fetch()
	l1.set(func() {
		if a := l1.arenas; a[2] != a[1] || a[3] == a[2] || a[4] != a[3] || !slices.Equal(l1.gone, []string{a[2]}) {
			t.Errorf("the arenas are %v, and %v are gone", a, l1.gone)
		}
	})
}
