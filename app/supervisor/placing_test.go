package supervisor

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"millrace/orchestrator/placer"
)

// estate is a started machine whose orchestrator (pid 100) may ask for loaders l0, l1 and so on, and shadows s0, s1. It
// begins with l0 (101) and a sidecar (102).
type estate struct {
	*testing.T
	m   *machine
	now time.Time
}

func newEstate(t *testing.T) *estate {
	spawn := func(role string, i int) (Child, bool) {
		return Child{Role: role, Name: fmt.Sprintf("%s%d", role[:1], i)}, role == "loader" || role == "shadow"
	}
	e := &estate{T: t, now: time.Unix(1000, 0)}
	e.m = newMachine([]Child{{Role: "orchestrator", Name: "o"}, {Role: "loader", Name: "l0"},
		{Role: "sidecar", Name: "side"}}, spawn, verdicts, 3*time.Second, 0)
	e.check("start o, start l0, start side", evBegin{})
	e.check("all ready", evReady{0, 100}, evReady{1, 101}, evReady{2, 102})
	return e
}

func (e *estate) check(want string, events ...any) {
	e.Helper()
	if got := script(e.m, &e.now, events...); got != want {
		e.Fatalf("got %q, want %q", got, want)
	}
}

// place asks for a goal and returns the refusal.
func (e *estate) place(want string, goal ...placer.Wanted) (refused string) {
	e.Helper()
	ev := evPlace{child: 0, pid: 100, id: "x", goal: placer.Desired{Roles: goal}}
	answered := false
	var out []string
	todo := e.m.step(e.now, ev)
	for len(todo) > 0 {
		a := todo[0]
		todo = todo[1:]
		switch a := a.(type) {
		case acStart:
			out = append(out, "start "+e.m.children[a.child].Name)
			todo = append(todo, e.m.step(e.now, evStarted{a.child, 100 + a.child})...)
		case acSignal:
			out = append(out, fmt.Sprintf("%v %d", Exit{Signal: a.signal}, a.pid))
		case acPlaced:
			answered, refused = a.ID == "x", a.Refused
		}
	}
	if got := strings.Join(out, ", "); got != want || !answered {
		e.Fatalf("got %q (answered: %v), want %q", got, answered, want)
	}
	return refused
}

func loaders(n int) placer.Wanted { return placer.Wanted{Role: "loader", Count: n} }

func (e *estate) shows(want string) {
	e.Helper()
	var out []string
	for _, r := range e.m.roles() {
		out = append(out, r.Name+" "+string(r.State))
	}
	if got := strings.Join(out, ", "); got != want {
		e.Fatalf("roles are %q, want %q", got, want)
	}
}

func TestChildrenAreAddedAndRetired(t *testing.T) {
	e := newEstate(t)
	e.place("start l1, start l2", loaders(3))
	e.place("", loaders(3))
	e.check("", evReady{3, 103})
	e.place("SIGTERM 104, SIGTERM 103", loaders(1)) // the highest first
	e.shows("o running, l0 running, side running, l1 stopping, l2 stopping")
	e.check("", evReady{4, 104}) // it says so too late
	e.shows("o running, l0 running, side running, l1 stopping, l2 stopping")
	e.check("", evExited{4, 104, Exit{}})
	e.shows("o running, l0 running, side running, l1 stopping")
	e.check("", 59*time.Second)
	e.check("SIGKILL l1", time.Second)
	e.check("", time.Hour)
	e.check("", evExited{3, 103, Exit{Signal: syscall.SIGKILL}})
	e.shows("o running, l0 running, side running")
	e.place("start l1", loaders(2)) // it is new, and has no past
	if r := e.m.roles()[3]; r.Name != "l1" || r.Restarts != 0 || r.State != Starting {
		t.Errorf("%+v", r)
	}
}

func TestALeavingChildThatIsWantedAgainStartsAfterItsEnd(t *testing.T) {
	e := newEstate(t)
	e.place("start l1", loaders(2))
	e.place("SIGTERM 103", loaders(1))
	e.place("", loaders(2))
	e.shows("o running, l0 running, side running, l1 stopping")
	e.place("", loaders(1)) // it was asked already
	e.place("", loaders(2))
	e.check("start l1", evExited{3, 103, Exit{Signal: syscall.SIGTERM}})
	e.shows("o running, l0 running, side running, l1 starting")
	e.check("", 2*time.Minute)
	e.shows("o running, l0 running, side running, l1 starting")
}

// TestAChildThatWaitsForItsRestartIsRetired: it has no process to ask.
func TestAChildThatWaitsForItsRestartIsRetired(t *testing.T) {
	e := newEstate(t)
	e.place("start l1", loaders(2))
	e.check("start l1", evExited{3, 103, Exit{Code: 2}})
	e.check("", evExited{3, 113, Exit{Code: 2}}) // the second restart waits
	e.place("", loaders(1))
	e.check("", time.Hour)
	e.shows("o running, l0 running, side running")
}

func TestAddedChildrenStopWithTheirRole(t *testing.T) {
	e := newEstate(t)
	e.place("start l1", loaders(2))
	e.check("ending, SIGINT side", evStop{})
	e.check("SIGINT l1, SIGINT l0", evExited{2, 102, Exit{}})
	e.check("SIGINT o", evExited{1, 101, Exit{}}, evExited{3, 103, Exit{}})
	e.check("", evExited{0, 100, Exit{}})
	if !e.m.isDone() {
		t.Error("the run is not over")
	}
}

// TestARetiredChildDelaysNoReadiness of the run, even if it never served.
func TestARetiredChildDelaysNoReadiness(t *testing.T) {
	e := newEstate(t)
	e.m.announced = false
	e.place("start l1", loaders(2))
	e.check("", evReady{0, 100})
	e.place("SIGTERM 103", loaders(1))
	if !e.m.announced {
		t.Error("a process that nobody wants keeps the run from being ready")
	}
}

func TestTheRunGoesOnWithoutAnAddedChild(t *testing.T) {
	e := newEstate(t)
	e.place("start l1", loaders(2))
	e.check("", evStartFailed{3, errors.New("no memory")})
	e.check("start l1", 50*time.Millisecond)
}

func TestAFencedChildThatLeavesIsNotReplaced(t *testing.T) {
	e := newEstate(t)
	e.place("start l1", loaders(2))
	e.place("SIGTERM 103", loaders(1))
	e.check("", evFenced{0, "l1", 103})
	e.check("SIGKILL l1/103", time.Minute)
	e.check("", evExited{3, 103, Exit{Signal: syscall.SIGKILL}})
	e.shows("o running, l0 running, side running")
}

func TestAGoalIsRefusedAsAWhole(t *testing.T) {
	for _, c := range []struct {
		goal []placer.Wanted
		why  []string
	}{
		{[]placer.Wanted{loaders(2), {Role: "sidecar", Count: 2}}, []string{"sidecar", "no further"}},
		{[]placer.Wanted{loaders(-1)}, []string{"loader", "less than 0"}},
		{[]placer.Wanted{loaders(2), loaders(3)}, []string{"loader", "twice"}},
		{[]placer.Wanted{{Role: "loader", Count: 2, Apart: "loader"}}, []string{"loader", "several hosts"}},
		{[]placer.Wanted{{Role: "shadow", Count: 1, Apart: "loader"}}, []string{"shadow", "several hosts"}},
	} {
		e := newEstate(t)
		refused := e.place("", c.goal...)
		for _, word := range append(c.why, Engine, ": ") {
			if !strings.Contains(refused, word) {
				t.Errorf("the refusal of %v is %q, want %q in it", c.goal, refused, word)
			}
		}
	}
	e := newEstate(t)
	for _, w := range []placer.Wanted{{Role: "loader", Count: 1, Apart: "loader"}, {Role: "shadow", Apart: "loader"}} {
		if refused := e.place("", w); refused != "" {
			t.Errorf("%v is refused: %s", w, refused)
		}
	}
}

// TestOnlyTheOrchestratorPlaces: requests of other roles and of earlier lives have no answer.
func TestOnlyTheOrchestratorPlaces(t *testing.T) {
	e := newEstate(t)
	goal := placer.Desired{Roles: []placer.Wanted{loaders(4)}}
	e.check("", evPlace{child: 1, pid: 101, id: "x", goal: goal}, evPlace{child: 0, pid: 99, id: "x", goal: goal})
	e.check("ending, SIGINT side", evStop{}, evPlace{child: 0, pid: 100, id: "x", goal: goal})
}

// TestAChangeReplacesOneProcess: the child of a role gets other arguments, and its process leaves for the next one. A
// process that does not leave is killed.
func TestAChangeReplacesOneProcess(t *testing.T) {
	e := newEstate(t)
	next := Child{Role: "sidecar", Name: "side", Args: []string{"--ranks", "2"}}
	e.check("SIGTERM side", evChange{next})
	e.check("start side", evExited{2, 102, Exit{}})
	if c := e.m.children[2].Child; len(c.Args) != 2 {
		t.Errorf("the next process has the arguments %q", c.Args)
	}
	pid := e.m.children[2].pid
	e.check("SIGTERM side", evReady{2, pid}, evChange{next})
	e.now = e.now.Add(changeGrace)
	e.check("SIGKILL side", evTick{})
}
