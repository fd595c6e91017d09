package roster

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"millrace"
	"millrace/internal/wire"
	"millrace/orchestrator/planner/progress"
	pb "millrace/proto"
)

// host is a Session of a sidecar that remembers its orders.
type host struct{ got []*pb.SidecarOrder }

func (h *host) Send(msg any) { h.got = append(h.got, msg.(*pb.SidecarOrder)) }

// wasDismissed reports whether the process was told to leave.
func (h *host) wasDismissed() bool { return len(h.got) > 0 && h.got[len(h.got)-1].GetBye() != nil }

// sidecars are Sidecars whose orders arrive at once.
type sidecars struct {
	*Sidecars
	out *Actions
}

func newSidecars() *sidecars {
	out := &Actions{}
	return &sidecars{NewSidecars(out, func() *pb.Fence { return &pb.Fence{} }), out}
}

func (s *sidecars) connect(up, identity string, born int64) (*host, bool) {
	h := &host{}
	stays := s.Connect(h, &pb.SidecarHello{Name: "sidecar-0", Identity: identity, Up: up, Born: born})
	for _, a := range s.out.Take() {
		a.To.Send(a.Msg)
	}
	return h, stays
}

// TestASidecarOfAHostThatBootedLaterStays: the boot times of two hosts order nothing.
func TestASidecarOfAHostThatBootedLaterStays(t *testing.T) {
	s := newSidecars()
	old, _ := s.connect("up of a host that runs for long", "a", 1_000_000)
	next, stays := s.connect("up of a host that has just booted", "b", 5)
	if !stays || next.wasDismissed() || !old.wasDismissed() {
		t.Fatalf("the new process stays %t and was dismissed %t, the old one %t", stays, next.wasDismissed(),
			old.wasDismissed())
	}
	if again, stays := s.connect("up of a host that runs for long", "a", 1_000_000); stays || !again.wasDismissed() {
		t.Error("a replaced process came back")
	}
	if sessions, all := s.Connected(); len(sessions) != 1 || sessions[0] != Session(next) || !all {
		t.Errorf("connected %v, all %t; want the new process", sessions, all)
	}
}

// TestAReplacedSidecarStaysReplaced: it is refused also if no process of its name is connected.
func TestAReplacedSidecarStaysReplaced(t *testing.T) {
	s := newSidecars()
	first, _ := s.connect("1", "a", 1)
	s.Disconnect(first, "sidecar-0")
	if _, stays := s.connect("1", "a", 1); !stays {
		t.Fatal("a process whose connection was lost was refused")
	}
	next, _ := s.connect("1", "b", 2)
	s.Disconnect(next, "sidecar-0")
	if zombie, stays := s.connect("1", "a", 1); stays || !zombie.wasDismissed() {
		t.Error("a replaced process came back while its successor was away")
	}
	if _, stays := s.connect("1", "b", 2); !stays {
		t.Error("the successor was refused")
	}
}

// TestProcessesOfOneUpAreOrderedByTheirStart: the hello of an earlier process comes late.
func TestProcessesOfOneUpAreOrderedByTheirStart(t *testing.T) {
	s := newSidecars()
	next, _ := s.connect("1", "b", 2)
	if late, stays := s.connect("1", "a", 1); stays || !late.wasDismissed() || next.wasDismissed() {
		t.Error("an earlier process replaced a later one")
	}
}

// TestReplacedProcessesAreBounded: the memory of a name has a limit, and the newest processes are in it.
func TestReplacedProcessesAreBounded(t *testing.T) {
	s := succession{}
	for i := range 3 * mostReplaced {
		s.follow("loader-0", fmt.Sprint(i))
		s.replace("loader-0", fmt.Sprint(i)) // fenced before its successor has come
	}
	if n := len(s["loader-0"].replaced); n != mostReplaced {
		t.Errorf("%d replaced processes are remembered, want %d", n, mostReplaced)
	}
	if last := fmt.Sprint(3*mostReplaced - 1); !s.isReplaced("loader-0", last) {
		t.Error("the newest replaced process was forgotten")
	}
}

// tryConnect lets a loader process connect that may be refused.
func (w *world) tryConnect(hello *pb.LoaderHello) error {
	hello.Version = &pb.Version{Protocol: wire.ProtocolVersion, Planner: progress.PlannerVersion}
	l := &loader{}
	err := w.roster.Connect(l, hello)
	if err == nil {
		w.loaders[hello.Name] = l
	}
	w.settle()
	return err
}

// TestAReplacedLoaderDoesNotReplaceItsSuccessor: no stripe of it had a standby, so it was not fenced.
func TestAReplacedLoaderDoesNotReplaceItsSuccessor(t *testing.T) {
	w := newWorld(t)
	w.connect("loader-0", 1, false)
	w.connect("loader-0", 2, false)
	err := w.tryConnect(&pb.LoaderHello{Name: "loader-0", Identity: identity("loader-0", 1), Pid: 1})
	if !errors.Is(err, millrace.ErrFenced) || !strings.Contains(err.Error(), "pid 1") {
		t.Fatalf("the replaced process: %v", err)
	}
	if w.roster.members["loader-0"].hello.Pid != 2 || w.reader().Name != "loader-0" {
		t.Error("the successor lost its place")
	}
	if err := w.tryConnect(&pb.LoaderHello{Name: "loader-0", Identity: "3", Pid: 1}); err != nil {
		t.Errorf("another process with the pid of a replaced one: %v", err)
	}
}

// TestAFencedProcessOfAnotherHostIsReportedToNobody: no supervisor of this host can end it. It is told to leave.
func TestAFencedProcessOfAnotherHostIsReportedToNobody(t *testing.T) {
	for up, want := range map[string]int{"": 1, "1": 1, "2": 0} { // the orchestrator's is 1
		w := newWorld(t)
		if err := w.tryConnect(&pb.LoaderHello{Name: "loader-0", Identity: "a", Up: up}); err != nil {
			t.Fatal(err)
		}
		w.connect("shadow-0", 2, true)
		l := w.loaders["loader-0"]
		w.roster.Ready(w.loaders["shadow-0"], "shadow-0",
			&pb.Ready{Source: "web", Term: w.roster.stripes.all[0].standby.term})
		standby := w.reader().Standby
		w.roster.Switched(&pb.Switched{Source: "web", Term: standby.GetTerm(), Reason: "it is silent"}, w.journal.Term)
		w.settle()
		if got := w.reader().Name; len(w.fenced) != want || got != "shadow-0" {
			t.Errorf("up %q: %s reads, and %d processes were reported, want %d", up, got, len(w.fenced), want)
		}
		if l.got[len(l.got)-1].GetBye() == nil {
			t.Errorf("up %q: the process was not told to leave", up)
		}
		if err := w.tryConnect(&pb.LoaderHello{Name: "loader-0", Identity: "a", Up: up}); !errors.Is(err,
			millrace.ErrFenced) {
			t.Errorf("up %q: the fenced process came back: %v", up, err)
		}
	}
}
