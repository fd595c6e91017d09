package supervisor

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func itoa(n int) string { return strconv.Itoa(n) }

func TestRestartPolicy(t *testing.T) {
	ms, s := time.Millisecond, time.Second
	type death struct {
		after   time.Duration // life
		why     blame
		delay   time.Duration // -1: any
		givenUp bool
	}
	repeat := func(n int, d death) (out []death) {
		for range n {
			out = append(out, d)
		}
		return out
	}
	cases := map[string][]death{
		"own faults back off and end": {
			{0, own, 0, false}, {0, own, 50 * ms, false}, {0, own, 100 * ms, false}, {0, own, 200 * ms, false},
			{0, own, 400 * ms, false}, {0, own, 800 * ms, false}, {0, own, 1600 * ms, false}, {0, own, 0, true},
		},
		"a healthy life forgets the deaths, not yet the delays": append(
			append(repeat(1, death{0, own, 0, false}), death{0, own, 50 * ms, false}),
			death{5 * s, own, 100 * ms, false}, death{10 * s, own, 0, false}, death{0, own, 50 * ms, false}),
		"killed once a second for an hour restarts at once": repeat(3600, death{s, outside, 0, false}),
		"killed from outside at birth backs off and goes on": append(repeat(500, death{0, outside, -1, false}),
			death{0, outside, maxDelay, false}, death{s, outside, -1, false}, death{s, outside, 0, false}),
		"deaths far apart are no loop": repeat(40, death{4900 * ms, own, -1, false}),
		"kills between own faults do not hide them": append(
			slices.Concat(slices.Repeat([]death{{0, own, -1, false}, {0, outside, -1, false}}, 7)),
			death{0, own, 0, true}),
		"a child that waits is restarted later and later, without end": slices.Concat(
			[]death{{0, lacking, 50 * ms, false}, {0, lacking, 100 * ms, false}, {0, lacking, 200 * ms, false}},
			repeat(500, death{0, lacking, -1, false}), repeat(1, death{0, lacking, maxDelay, false})),
		"own faults after many waits are counted from zero": append(repeat(50, death{0, lacking, -1, false}),
			death{0, own, 0, false}, death{0, own, 50 * ms, false}),
	}
	for name, deaths := range cases {
		t.Run(name, func(t *testing.T) {
			var l lives
			now := time.Unix(1000, 0)
			for i, d := range deaths {
				now = now.Add(d.after)
				delay, verdict := l.died(now, d.after, d.why)
				if d.delay >= 0 && delay != d.delay || (verdict != "") != d.givenUp || delay > maxDelay {
					t.Fatalf("death %d: delay %v, verdict %q; want %+v", i, delay, verdict, d)
				}
				now = now.Add(delay)
			}
		})
	}
}

// script feeds events to a machine and returns its actions as text.
func script(m *machine, now *time.Time, events ...any) string {
	var out []string
	pids := map[int]string{} // names by pid, for the text
	for i := range m.children {
		pids[m.children[i].pid] = m.children[i].Name
	}
	for _, f := range m.replaced {
		pids[f.pid] = fmt.Sprintf("%s/%d", m.children[f.child].Name, f.pid)
	}
	for _, e := range events {
		if d, ok := e.(time.Duration); ok {
			*now = now.Add(d)
			e = evTick{}
		}
		todo := m.step(*now, e)
		for len(todo) > 0 {
			a := todo[0]
			todo = todo[1:]
			switch a := a.(type) {
			case acStart:
				if !m.stopping {
					out = append(out, "start "+m.children[a.child].Name)
					pid := 100 + a.child + 10*m.children[a.child].restarts
					todo = append(todo, m.step(*now, evStarted{a.child, pid})...)
				}
			case acSignal:
				out = append(out, fmt.Sprintf("%v %s", Exit{Signal: a.signal}, pids[a.pid]))
			case acAllReady:
				out = append(out, "all ready")
			case acEnding:
				out = append(out, "ending")
			}
		}
	}
	return strings.Join(out, ", ")
}

func TestStopWaves(t *testing.T) {
	now := time.Unix(1000, 0)
	m := newMachine(
		[]Child{
			{Role: "orchestrator", Name: "o"},
			{Role: "loader", Name: "l0"},
			{Role: "loader", Name: "l1"},
			{Role: "sidecar", Name: "s"},
		},
		nil,
		verdicts,
		3*time.Second,
		0,
	)
	check := func(want string, events ...any) {
		t.Helper()
		if got := script(m, &now, events...); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	check("start o, start l0, start l1, start s", evBegin{})
	check("", evReady{0, 100}, evReady{1, 101}, evReady{2, 102})
	check("start l1", evExited{2, 102, Exit{Signal: syscall.SIGKILL}})
	check("", evReady{3, 103}) // l1 must be running first
	check("", evReady{2, 102}) // from its previous life
	check("all ready", evReady{2, 112})
	check("", evReady{2, 112})
	check("start l0", evExited{1, 101, Exit{Code: 2}})
	// l0 waits for its delay and is not started any more.
	check("ending, SIGINT s", evExited{1, 111, Exit{Code: 2}}, evStop{})
	check("", 999*time.Millisecond)
	check("SIGINT l1", time.Millisecond) // the part of the sidecar is over
	check("SIGINT o", evExited{2, 112, Exit{}}, time.Second)
	check("", evExited{0, 100, Exit{}})
	if m.isDone() {
		t.Fatal("done with a sidecar alive")
	}
	check("SIGKILL s", time.Second)
	check("", evExited{3, 103, Exit{Signal: syscall.SIGKILL}})
	if !m.isDone() || m.result != Stopped {
		t.Fatalf("done %v, result %v", m.isDone(), m.result)
	}
}

// TestAFailureCountsDuringAStop: a run that failed before it was asked to stop ends with the failure.
func TestAFailureCountsDuringAStop(t *testing.T) {
	for code, want := range map[int]Result{0: Stopped, 1: Failed, 2: Stopped} {
		now := time.Unix(1000, 0)
		m := newMachine([]Child{{Role: "orchestrator", Name: "o"}}, nil, verdicts, time.Second, 0)
		script(m, &now, evBegin{}, evStop{}, evExited{0, 100, Exit{Code: code, LastLine: "bad file"}})
		if !m.isDone() || m.result != want || (m.err != nil) != (want == Failed) {
			t.Errorf("exit %d: result %v, %v", code, m.result, m.err)
		}
	}
}

func TestExecFailureFailsTheRun(t *testing.T) {
	now := time.Unix(1000, 0)
	m := newMachine([]Child{{Role: "loader", Name: "l0"}, {Role: "sidecar", Name: "s"}}, nil, verdicts, time.Second, 0)
	script(m, &now, evBegin{})
	script(m, &now, evExited{1, 101, Exit{Code: 2}}, evExited{1, 111, Exit{Code: 2}}) // the second restart waits
	if got := script(m, &now, evStartFailed{1, errors.New("no memory")}); got != "ending, SIGINT l0" {
		t.Fatalf("got %q", got)
	}
	if m.err == nil || m.err.Error() != "start s: no memory" {
		t.Fatalf("got %v", m.err)
	}
}

func TestLinesStayWhole(t *testing.T) {
	var out bytes.Buffer
	l := &lineWriter{out: &syncWriter{w: &out}, dir: t.TempDir(), name: "x"}
	long := strings.Repeat("a", maxLine+10)
	for _, part := range []string{"one\ntw", "o", "\n\nthree\n", long[:maxLine-1], long[maxLine-1:], "\nend"} {
		_, _ = l.Write([]byte(part))
	}
	l.finish()
	if want := "one\ntwo\n\nthree\n" + long + "\n" + "\nend\n"; out.String() != want {
		t.Errorf("got %d bytes, want %d", out.Len(), len(want))
	}
	if l.last != "end" {
		t.Errorf("last line %q", l.last)
	}
}

// fleet returns a started machine with an orchestrator and two loaders, pids 100 to 102. Each restart adds 10 to a pid.
func fleet(t *testing.T) (m *machine, check func(want string, events ...any)) {
	now := time.Unix(1000, 0)
	m = newMachine(
		[]Child{{Role: "orchestrator", Name: "o"}, {Role: "loader", Name: "l0"}, {Role: "loader", Name: "l1"}},
		nil, verdicts, 3*time.Second, 0)
	script(m, &now, evBegin{}, evReady{0, 100}, evReady{1, 101}, evReady{2, 102})
	return m, func(want string, events ...any) {
		t.Helper()
		if got := script(m, &now, events...); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
}

func TestAFencedProcessIsReplacedAtOnce(t *testing.T) {
	m, check := fleet(t)
	check("", evFenced{1, "l1", 102}) // a loader's report does not count
	check("", evFenced{0, "l1", 99})  // from a previous life
	check("start l1", evFenced{0, "l1", 102})
	check("", evFenced{0, "l1", 102}, evReady{2, 102}, evTerm{2, 102, 7}) // reports of a fenced process do not count
	if r := m.roles()[2]; r.Pid != 112 || r.State != Starting || r.Term != 0 {
		t.Fatalf("%+v", r)
	}
	check("", 59*time.Second, evReady{2, 112})
	check("SIGKILL l1/102", time.Second)
	check("", time.Hour)
	check("", evExited{2, 102, Exit{Signal: syscall.SIGKILL}})
	if r := m.roles()[2]; r.Pid != 112 || r.State != Running || len(m.replaced) != 0 {
		t.Fatalf("%+v, %v", r, m.replaced)
	}
	// A stop kills the replaced processes first. The run is over when they have exited.
	check("start l0", evFenced{0, "l0", 101})
	check("ending, SIGKILL l0/101, SIGINT l1, SIGINT l0", evStop{})
	check("SIGINT o", evExited{1, 111, Exit{}}, evExited{2, 112, Exit{}})
	check("", evExited{0, 100, Exit{}})
	if m.isDone() {
		t.Fatal("done while a replaced process is there")
	}
	check("", evExited{1, 101, Exit{Signal: syscall.SIGKILL}})
	if !m.isDone() || m.result != Stopped {
		t.Fatalf("done %v, result %v", m.isDone(), m.result)
	}
}

// TestALeavingSupervisorGivesNoReason: trainers wait for the next supervisor.
func TestALeavingSupervisorGivesNoReason(t *testing.T) {
	m, check := fleet(t)
	check("SIGINT l1, SIGINT l0", evLeave{})
	check("SIGINT o", evExited{1, 101, Exit{}}, evExited{2, 102, Exit{}})
	check("", evLeave{}, evExited{0, 100, Exit{}})
	if !m.isDone() || m.result != Stopped {
		t.Fatalf("done %v, result %v", m.isDone(), m.result)
	}
}

// TestARunThatEndedElsewhere ends this supervisor with its outcome, and nobody hands anything over.
func TestARunThatEndedElsewhere(t *testing.T) {
	for _, c := range []struct {
		err    error
		want   string
		result Result
	}{{nil, "SIGINT l", Finished}, {errors.New("a file is missing"), "ending, SIGINT l", Failed}} {
		now := time.Unix(1000, 0)
		m := newMachine([]Child{{Role: "loader", Name: "l", HandsOver: true}}, nil, verdicts, time.Second, 0)
		script(m, &now, evBegin{})
		if got := script(m, &now, evOver{c.err}); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
		script(m, &now, evExited{0, 100, Exit{}})
		if !m.isDone() || m.result != c.result || !errors.Is(m.err, c.err) {
			t.Errorf("done %v, result %v, %v", m.isDone(), m.result, m.err)
		}
	}
}

// TestAStopLetsAChildHandOver: the signal tells it that the run goes on without it.
func TestAStopLetsAChildHandOver(t *testing.T) {
	now := time.Unix(1000, 0)
	m := newMachine([]Child{{Role: "loader", Name: "l", HandsOver: true}}, nil, verdicts, time.Second, 0)
	script(m, &now, evBegin{})
	if got := script(m, &now, evStop{}); got != "ending, SIGTERM l" {
		t.Errorf("got %q", got)
	}
}

// TestReplacedProcessesDoNotPileUp: a child that is fenced many times leaves at most maxFormer replaced processes.
func TestReplacedProcessesDoNotPileUp(t *testing.T) {
	m, check := fleet(t)
	for n := range maxFormer {
		check("start l0", evFenced{0, "l0", 101 + 10*n})
	}
	check("SIGKILL l0/101, start l0", evFenced{0, "l0", 101 + 10*maxFormer})
	check("SIGKILL l0/111, start l0", evFenced{0, "l0", 111 + 10*maxFormer})
	if len(m.replaced) != maxFormer+2 {
		t.Fatalf("%v", m.replaced)
	}
}

// TestFencingHidesNoFault: a child that crashes again and again ends the run, even if it was fenced before each crash.
func TestFencingHidesNoFault(t *testing.T) {
	_, check := fleet(t)
	for n := range maxFaults {
		check("start l0", evFenced{0, "l0", 101 + 10*n})
		want := ""
		if n == maxFaults-1 {
			want = "ending, SIGINT l1, SIGINT l0"
		}
		check(want, evExited{1, 101 + 10*n, Exit{Code: 2}})
	}
}

// TestCausesFromOutsideEndNoRun: kills, requests to leave and full disks.
func TestCausesFromOutsideEndNoRun(t *testing.T) {
	for name, exit := range map[string]Exit{
		"killed": {Signal: syscall.SIGKILL}, "left": {Code: 3}, "full": {Code: 4, LastLine: "no room on /x"},
	} {
		t.Run(name, func(t *testing.T) {
			m, check := fleet(t)
			check("start o", time.Second, evExited{0, 100, Exit{Code: 3}})
			for n := 1; n < 200; n++ {
				// It dies at birth, and is restarted soon.
				check("start o", evExited{0, 100 + 10*n, exit}, maxDelay)
				if lacks := m.roles()[0].Lacks; m.stopping || lacks != exit.LastLine {
					t.Fatalf("after %d: stopping %v: %v; it lacks %q", n, m.stopping, m.err, lacks)
				}
			}
			check("", evReady{0, m.children[0].pid})
			if r := m.roles()[0]; r.Lacks != "" || r.State != Running {
				t.Fatalf("%+v", r)
			}
		})
	}
}

// TestTheEndOfAWaitIsTold once, also by the process after the one that began it. Its reasons may change meanwhile.
func TestTheEndOfAWaitIsTold(t *testing.T) {
	for name, death := range map[string]Exit{
		"killed": {Signal: syscall.SIGKILL}, "it waits": {Code: 4, LastLine: "frozen: lost"}, "alive": {},
	} {
		m, _ := fleet(t)
		now := time.Unix(1000, 0)
		var told []string
		hear := func(events ...event) {
			for _, e := range events {
				for _, a := range m.step(now, e) {
					if n, ok := a.(acNotice); ok && !strings.Contains(n.line, "restart") {
						told = append(told, n.line)
					}
				}
			}
		}
		hear(evLacks{0, 100, ""}, evLacks{0, 100, "etcd"}, evLacks{0, 100, "etcd"}, evLacks{0, 99, "old"})
		hear(evLacks{0, 100, "a lease"})
		pid := 100
		if death != (Exit{}) {
			pid = 110
			hear(evExited{0, 100, death}, evStarted{0, pid}, evLacks{0, 100, ""}, evReady{0, pid})
		}
		hear(evLacks{0, pid, ""}, evLacks{0, pid, ""})
		if got, want := strings.Join(told, ", "), "warning: etcd, warning: a lease, over: a lease"; got != want {
			t.Errorf("%s: people read %q, want %q", name, got, want)
		}
		if lacks := m.roles()[0].Lacks; lacks != "" {
			t.Errorf("%s: it lacks %q", name, lacks)
		}
	}
}

func TestReportsAreUnderstood(t *testing.T) {
	for line, want := range map[string]event{
		"ready": evReady{1, 5}, "term 7": evTerm{1, 5, 7}, "fenced loader-0 123": evFenced{1, "loader-0", 123},
		"lacks a lease": evLacks{1, 5, "a lease"}, "lacks ": evLacks{1, 5, ""}, "term": nil,
		"trainers 3": evTrainers{1, 5, 3}, "trainers": nil,
		"fenced loader-0": nil, "fenced loader-0 x": nil, "": nil, "leave": nil,
	} {
		if got := parseReport(1, 5, line); got != want {
			t.Errorf("%q: %#v", line, got)
		}
	}
}
