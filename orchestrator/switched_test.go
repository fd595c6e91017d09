package orchestrator

import (
	"context"
	"testing"
	"time"

	"millrace/checkpoint/disk/disktest"
	"millrace/internal/seam"

	"millrace/orchestrator/facts"
	"millrace/proto"
)

// TestAHostThatAsksALostStandbyGetsAReader: the primary that the host gave up lives. It is given the stripe again,
// under a term that the host takes.
func TestAHostThatAsksALostStandbyGetsAReader(t *testing.T) {
	c := newCluster(t, 1, "loader-0", "loader-1", "shadow-0")
	c.settle()
	before := reader(c.m, "web", 0)
	lost := before.Standby.Term
	shadow := c.slots["shadow-0"]
	c.m.roster.Disconnect(shadow.box, "shadow-0")
	c.slots["shadow-0"] = nil
	c.turn()
	c.m.roster.Switched(
		&proto.Switched{Source: "web", Stripe: 0, Term: lost, Step: c.m.s.Watermark, Reason: "it is silent"},
		c.m.s.AssignTerm)
	c.turn()
	now := reader(c.m, "web", 0)
	if now.Address != before.Address || now.Term <= lost ||
		c.dir[facts.Stripe{Source: "web", Index: 0}].Term != now.Term {
		t.Errorf("it was %s's under term %d, the host is ahead at %d; now it is %+v", before.Name, before.Term, lost,
			now)
	}
	for _, old := range []uint64{before.Term, lost, c.m.s.AssignTerm + 7} {
		c.m.roster.Switched(&proto.Switched{Source: "web", Stripe: 0, Term: old, Reason: "late"}, c.m.s.AssignTerm)
	}
	c.turn()
	if after := reader(c.m, "web", 0); after.Name != now.Name || after.Term != now.Term {
		t.Errorf("reports of other terms changed it to %+v", after)
	}
	c.settle()
}

// TestAReportOfADeadSidecarMovesNoStripe: messages of a process may arrive after its end, as when the link of its host
// was cut meanwhile. A report of the process that has its place counts.
func TestAReportOfADeadSidecarMovesNoStripe(t *testing.T) {
	c := newCluster(t, 1, "loader-0", "loader-1", "shadow-0")
	c.settle()
	before := reader(c.m, "web", 0)
	switched := &proto.Switched{Source: "web", Stripe: 0, Term: before.Standby.Term, Reason: "it is silent"}
	report := &proto.SidecarEvent{Event: &proto.SidecarEvent_Switched{Switched: switched}}
	hello := func(identity string) *proto.SidecarHello {
		return &proto.SidecarHello{Version: testVersion(), Name: "sidecar-1", Identity: identity}
	}
	replaced, refused, gone, now := &box{}, &box{}, &box{}, &box{}
	for _, e := range []func(){
		func() { c.m.SidecarUp(replaced, hello("first")) },
		func() { c.m.SidecarUp(gone, hello("second")) },
		func() { c.m.SidecarUp(refused, hello("first")) },
		func() { c.m.SidecarDown(gone, "sidecar-1") },
		func() { c.m.SidecarEvent(replaced, report) },
		func() { c.m.SidecarEvent(refused, report) },
		func() { c.m.SidecarEvent(gone, report) },
	} {
		e()
		c.turn()
	}
	if r := reader(c.m, "web", 0); r.Name != before.Name || r.Term != before.Term {
		t.Errorf("the stripe of %s moved to %s: %v", before.Name, r.Name, c.m.Status().Alerts)
	}
	c.m.SidecarUp(now, hello("third"))
	c.m.SidecarEvent(now, report)
	c.turn()
	if r := reader(c.m, "web", 0); r.Name != before.Standby.Name {
		t.Errorf("the stripe is still that of %s", r.Name)
	}
	c.settle()
}

// doubting is a clock that tells when a doubt about a sidecar begins. It lasts until the test ends it.
type doubting struct {
	seam.System
	begun, over chan time.Time
}

func (c doubting) After(d time.Duration) <-chan time.Time {
	if d != doubt {
		return c.System.After(d)
	}
	c.begun <- time.Time{}
	return c.over
}

// hear waits for a value.
func hear[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case x := <-from:
		return x
	case <-time.After(patience):
		t.Fatal("it does not come")
		panic("unreachable")
	}
}

// TestAReportAfterASilenceWaits: a sidecar that was silent may be dead, and its end come behind its report. If it
// lives, its report is passed on when the doubt is over.
func TestAReportAfterASilenceWaits(t *testing.T) {
	clock := doubting{begun: make(chan time.Time, 1), over: make(chan time.Time)}
	l := liveWith(t, Options{Clock: clock}, newConfig(t, 1), disktest.NewMemory())
	heard := make(chan uint64, 10)
	connect := func(name, identity string) (stream proto.Orchestrator_ServeClient, end func()) {
		ctx, end := context.WithCancel(context.Background())
		t.Cleanup(end)
		stream, err := proto.NewOrchestratorClient(l.conn).Serve(ctx)
		if err != nil {
			t.Fatal(err)
		}
		hello := &proto.SidecarHello{Version: testVersion(), Name: name, Identity: identity}
		err = stream.Send(&proto.SidecarEvent{Event: &proto.SidecarEvent_Hello{Hello: hello}})
		if err != nil {
			t.Fatal(err)
		}
		welcome := make(chan bool)
		go func() { // ends with the stream
			for isFirst := true; ; isFirst = false {
				order, err := stream.Recv()
				if isFirst {
					close(welcome)
				}
				if err != nil {
					return
				}
				if s := order.GetSwitched(); s != nil {
					heard <- s.Term
				}
			}
		}()
		hear(t, welcome)
		return stream, end
	}
	connect("sidecar-0", "only")
	report := func(stream proto.Orchestrator_ServeClient, term uint64) {
		s := &proto.Switched{Source: "web", Stripe: 1, Term: term, Reason: "it is silent"}
		if err := stream.Send(&proto.SidecarEvent{Event: &proto.SidecarEvent_Switched{Switched: s}}); err != nil {
			t.Fatal(err)
		}
	}
	dead, end := connect("sidecar-1", "first")
	time.Sleep(silentFor)
	report(dead, 7)
	hear(t, clock.begun)
	end()
	for there := true; there; time.Sleep(time.Millisecond) {
		l.ask(func(m *Machine) { there = isConnected(m, "sidecar-1") })
	}
	live, _ := connect("sidecar-1", "second")
	time.Sleep(silentFor)
	report(live, 8)
	hear(t, clock.begun)
	close(clock.over)
	if got := hear(t, heard); got != 8 {
		t.Errorf("the switch of term %d was passed on, and its sidecar was dead", got)
	}
	l.stop()
}

// TestABusyLoopRaisesNoDoubt: messages that waited for the loop, and not for the sidecar, are no sign of a silence.
func TestABusyLoopRaisesNoDoubt(t *testing.T) {
	var h hearing
	began := time.Now()
	for i, c := range []struct {
		asked, came time.Duration
		want        bool
	}{
		{0, silentFor - 1, false},
		{5 * silentFor, 5*silentFor + 1, false}, // the loop was busy
		{6 * silentFor, 7 * silentFor, true},
		{7 * silentFor, 7*silentFor + doubt - 1, true},
		{7*silentFor + doubt - 1, 7*silentFor + doubt, false},
	} {
		if got := h.isDoubtful(began.Add(c.asked), began.Add(c.came)); got != c.want {
			t.Errorf("message %d: a doubt: %t", i, got)
		}
	}
}

// TestAReportOfAReplacedSidecarIsNotPassedOn, although its stream is still open.
func TestAReportOfAReplacedSidecarIsNotPassedOn(t *testing.T) {
	boxes := map[string]*outbox{"other": newOutbox(), "before": newOutbox(), "now": newOutbox()}
	s := switches{to: map[string]*outbox{}, terms: map[facts.Stripe]uint64{}}
	s.join("sidecar-0", boxes["other"])
	s.join("sidecar-1", boxes["before"])
	s.join("sidecar-1", boxes["now"])
	for _, c := range []struct {
		from string
		term uint64
		want bool // the other one hears of it
	}{{"before", 9, false}, {"now", 9, true}, {"now", 9, false}} {
		s.pass(boxes[c.from], &proto.Fence{}, &proto.Switched{Source: "web", Term: c.term})
		if got := len(boxes["other"].ready) > 0; got != c.want {
			t.Errorf("a switch of %s is passed on: %t", c.from, got)
		}
		boxes["other"] = newOutbox()
		s.join("sidecar-0", boxes["other"])
	}
	s.leave("sidecar-1", boxes["before"]) // late
	s.pass(boxes["now"], &proto.Fence{}, &proto.Switched{Source: "web", Term: 10})
	if len(boxes["other"].ready) == 0 {
		t.Error("the end of its predecessor's stream silenced a sidecar")
	}
}
