package loader

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"millrace"
	"millrace/internal/wire"
	"millrace/proto"
	"millrace/sources/read/feed"
	"millrace/sources/read/order"
)

// follow makes the loader follow a stripe, and waits until it is ready.
func (x *session) follow(stripe order.Stripe, term, from uint64) {
	x.t.Helper()
	x.order(1, &proto.LoaderOrder{
		Order: &proto.LoaderOrder_Read{
			Read: &proto.ReadFrom{
				Source:  "web",
				Stripe:  stripe.Index,
				Stripes: max(1, stripe.Of),
				Term:    term,
				Ordinal: from,
				Standby: true,
			},
		},
	})
	if e := x.event(); e.GetReady().GetTerm() != term || e.GetReady().GetStripe() != stripe.Index ||
		e.GetFence().GetTerm() != term {
		x.t.Fatalf("a standby sent %v", e)
	}
}

func (x *session) promote(stripe uint32, term uint64) {
	x.t.Helper()
	x.order(1, &proto.LoaderOrder{
		Order: &proto.LoaderOrder_Promote{
			Promote: &proto.Promote{Source: "web", Stripe: stripe, Term: term, Step: 7},
		},
	})
}

// requestsFrom returns requests for all tokens of the offers from an ordinal on.
func requestsFrom(got []offered, from uint64) (reqs []feed.Request) {
	for _, o := range got {
		if o.ordinal >= from && o.tokens > 0 {
			reqs = append(reqs, feed.Request{Ordinal: millrace.Ordinal(o.ordinal), Length: o.tokens})
		}
	}
	return reqs
}

// TestAStandbyServesAndOffersNothing: a standby serves, and makes no offers before it is promoted. Then it offers from
// its cursor on, and serves on.
func TestAStandbyServesAndOffersNothing(t *testing.T) {
	w := newWorld(t, lengths(900)...)
	all, _ := w.direct(order.Stripe{}, nil)
	w.format.reads.Store(0)
	x := w.start()
	x.open()
	x.follow(order.Stripe{}, 9, 0)
	x.want(300)
	x.release(100)
	if n := w.format.reads.Load(); n > 64 {
		t.Errorf("a standby read %d records to keep its head warm", n)
	}
	reqs := requestsFrom(all, 700)
	_, want := w.direct(order.Stripe{}, reqs)
	w.format.reads.Store(0)
	f, err := w.fetch(request(9, reqs))
	if err != nil || !reflect.DeepEqual(f.rows, want) {
		t.Fatalf("far ahead of the cursor: %v, %d rows, want %d equal ones", err, len(f.rows), len(want))
	}
	if n := w.format.reads.Load(); n > int64(len(reqs)+64) {
		t.Errorf("%d records were read for %d", n, len(reqs))
	}
	if _, err := w.fetch(request(8, reqs)); !errors.Is(wire.FromStatus(err), millrace.ErrFenced) {
		t.Errorf("under another term: %v", err)
	}
	again := request(9, reqs[:5])
	again.Again, again.Hedge = true, true
	w.format.reads.Store(0)
	if f, err := w.fetch(again); err != nil || len(f.rows) != 5 || w.format.reads.Load() < 5 {
		t.Errorf("read again: %v, %d rows, %d records read", err, len(f.rows), w.format.reads.Load())
	}
	x.quiet()
	x.promote(0, 8) // another term than its own
	x.promote(0, 9)
	got, _ := x.offers(9, 200)
	if !reflect.DeepEqual(got, all[100:300]) {
		t.Errorf("after its promotion it offers %v", got)
	}
	x.want(1000)
	rest, end := x.offers(9, 600)
	if !end || !reflect.DeepEqual(rest, all[300:]) {
		t.Errorf("then, end %v, %v", end, rest)
	}
	if f, err := w.fetch(request(9, reqs)); err != nil || !reflect.DeepEqual(f.rows, want) {
		t.Errorf("after its promotion: %v, %d rows", err, len(f.rows))
	}
	if w.terms.Load() != 1 {
		t.Errorf("%d terms were reported", w.terms.Load())
	}
}

// TestStripesOfOneSourceAreReadSideBySide: each stripe has its own term and role.
func TestStripesOfOneSourceAreReadSideBySide(t *testing.T) {
	w := newWorld(t, lengths(400)...)
	x := w.start()
	x.open()
	one, two := order.Stripe{Index: 0, Of: 2}, order.Stripe{Index: 1, Of: 2}
	x.follow(two, 6, 0)
	x.read(one, 5, 0, 1000)
	mine, _ := w.direct(one, nil)
	if got, _ := x.offers(5, len(mine)); !reflect.DeepEqual(got, mine) {
		t.Errorf("stripe 0 offers %v", got)
	}
	theirs, _ := w.direct(two, nil)
	reqs := requestsFrom(theirs, 300)
	req := request(6, reqs)
	req.Part[0].Stripe = 1
	if f, err := w.fetch(req); err != nil || len(f.rows) != len(reqs) {
		t.Errorf("stripe 1: %v, %d rows", err, len(f.rows))
	}
	// not its term
	x.order(1, &proto.LoaderOrder{Order: &proto.LoaderOrder_Drop{Drop: &proto.Drop{Source: "web", Stripe: 1, Term: 5}}})
	x.order(1, &proto.LoaderOrder{Order: &proto.LoaderOrder_Drop{Drop: &proto.Drop{Source: "web", Stripe: 1, Term: 6}}})
	eventually(t, func() bool { _, err := w.fetch(req); return errors.Is(wire.FromStatus(err), millrace.ErrFenced) })
	if f, err := w.fetch(request(5, requestsFrom(mine, 0))); err != nil || len(f.rows) == 0 {
		t.Errorf("stripe 0 after stripe 1 was dropped: %v", err)
	}
	x.quiet()
}

// TestAStandbySurvivesItsOrchestrator: a new orchestrator learns that the standby is ready, and may promote it by an
// order to read.
func TestAStandbySurvivesItsOrchestrator(t *testing.T) {
	w := newWorld(t, lengths(200)...)
	all, _ := w.direct(order.Stripe{}, nil)
	x := w.start()
	x.open()
	x.follow(order.Stripe{}, 9, 0)
	x.release(50)
	w.orchestrate()
	x = w.orch.next(t)
	x.open()
	x.follow(order.Stripe{}, 11, 60)
	x.read(order.Stripe{}, 12, 70, 1000)
	if got, end := x.offers(12, 130); !end || !reflect.DeepEqual(got, all[70:]) {
		t.Errorf("end %v, offers %v", end, got)
	}
}

// TestALoaderThatIsAskedToLeaveServesOn: it serves until the orchestrator has handed over its stripes.
func TestALoaderThatIsAskedToLeaveServesOn(t *testing.T) {
	w := newWorld(t, lengths(40)...)
	leave := make(chan struct{})
	w.leave = leave
	x := w.start()
	x.open()
	x.read(order.Stripe{}, 5, 0, 40)
	all, _ := x.offers(5, 40)
	close(leave)
	if e := x.event(); e.GetLeaving().GetReason() == "" {
		t.Fatalf("asked to leave, it sent %v", e)
	}
	if f, err := w.fetch(request(5, requestsFrom(all, 0))); err != nil || len(f.rows) == 0 {
		t.Errorf("while it leaves: %v, %d rows", err, len(f.rows))
	}
	w.orchestrate()
	x = w.orch.next(t)
	if e := x.event(); e.GetLeaving().GetReason() == "" {
		t.Fatalf("to the next orchestrator it sent %v", e)
	}
	x.order(1, &proto.LoaderOrder{Order: &proto.LoaderOrder_Bye{Bye: &proto.Bye{Reason: "handed over"}}})
	if err := w.left(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// refusing is an orchestrator that refuses every loader.
type refusing struct {
	proto.UnimplementedOrchestratorServer
	with error
}

func (r refusing) Load(proto.Orchestrator_LoadServer) error { return wire.ToStatus(r.with) }

// TestALoaderLeavesWithoutAnOrchestrator: after the end of a run there is no orchestrator, so a loader leaves at once.
func TestALoaderLeavesWithoutAnOrchestrator(t *testing.T) {
	w := newWorld(t, "1")
	leave := make(chan struct{})
	w.leave = leave
	w.start()
	w.orch.server.Stop()
	close(leave)
	began := time.Now()
	if err := w.left(); err != nil || time.Since(began) > leaveGrace*3/4 {
		t.Errorf("it left after %v with %v", time.Since(began), err)
	}
}

// TestALoaderThatIsRefusedLeaves: it ends without an error if a newer process has its name, and with the reason if its
// program does not match the run.
func TestALoaderThatIsRefusedLeaves(t *testing.T) {
	otherProgram := millrace.Errorf(millrace.ErrInvalid, "loader-0 is millrace 0.1, the orchestrator is 0.2")
	for _, with := range []error{millrace.ErrFenced, otherProgram} {
		w := newWorld(t, lengths(40)...)
		w.start()
		w.orch.server.Stop()
		w.orch.server = grpc.NewServer()
		proto.RegisterOrchestratorServer(w.orch.server, refusing{with: with})
		l, err := w.net.Listen("orchestrator")
		if err != nil {
			t.Fatal(err)
		}
		go w.orch.server.Serve(l) // ends with Stop
		err = w.left()
		if fenced := errors.Is(with, millrace.ErrFenced); (err == nil) != fenced ||
			!fenced && !strings.Contains(err.Error(), with.Error()) {
			t.Errorf("refused with %v, it ended with %v", with, err)
		}
	}
}

// TestARoleIsTold: Role is called at every change.
func TestARoleIsTold(t *testing.T) {
	w := newWorld(t, lengths(40)...)
	roles := make(chan bool, 8)
	w.role = func(standby bool) { roles <- standby }
	x := w.start()
	x.open()
	x.follow(order.Stripe{}, 3, 0)
	x.promote(0, 3)
	x.order(1, &proto.LoaderOrder{
		Order: &proto.LoaderOrder_Read{Read: &proto.ReadFrom{Source: "web", Stripes: 1, Term: 4, Standby: true}},
	})
	for i, want := range []bool{true, false, true} {
		if got := <-roles; got != want {
			t.Errorf("role %d is %v", i, got)
		}
	}
}
