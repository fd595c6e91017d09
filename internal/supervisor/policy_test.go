package supervisor

import (
	"bytes"
	"errors"
	"fmt"
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
		outside bool
		delay   time.Duration
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
			{0, false, 0, false}, {0, false, 50 * ms, false}, {0, false, 100 * ms, false}, {0, false, 200 * ms, false},
			{0, false, 400 * ms, false}, {0, false, 800 * ms, false}, {0, false, 1600 * ms, false}, {0, false, 0, true},
		},
		"a healthy life forgets the deaths, not yet the delays": append(append(repeat(1, death{0, false, 0, false}), death{0, false, 50 * ms, false}),
			death{5 * s, false, 100 * ms, false}, death{10 * s, false, 0, false}, death{0, false, 50 * ms, false}),
		"killed from outside restarts at once, however often":       repeat(40, death{s, true, 0, false}),
		"deaths far apart are no loop":                              repeat(40, death{4900 * ms, false, -1, false}),
		"killed from outside at birth backs off, and ends some day": append(repeat(63, death{0, true, -1, false}), death{0, true, 0, true}),
	}
	for name, deaths := range cases {
		t.Run(name, func(t *testing.T) {
			var l lives
			now := time.Unix(1000, 0)
			for i, d := range deaths {
				now = now.Add(d.after)
				delay, verdict := l.died(now, d.after, d.outside)
				if d.delay >= 0 && delay != d.delay || (verdict != "") != d.givenUp || delay > maxDelay {
					t.Fatalf("death %d: delay %v, verdict %q; want %+v", i, delay, verdict, d)
				}
				now = now.Add(delay)
			}
		})
	}
}

// script drives a machine and prints what it does.
func script(m *machine, now *time.Time, events ...any) string {
	var out []string
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
					todo = append(todo, m.step(*now, evStarted{a.child, 100 + a.child})...)
				}
			case acSignal:
				out = append(out, fmt.Sprintf("%v %s", Exit{Signal: a.signal}, m.children[a.child].Name))
			case acAllReady:
				out = append(out, "all ready")
			case acFailing:
				out = append(out, "failing")
			}
		}
	}
	return strings.Join(out, ", ")
}

func TestStopWaves(t *testing.T) {
	now := time.Unix(1000, 0)
	m := newMachine([]Child{{Role: "orchestrator", Name: "o"}, {Role: "loader", Name: "l0"}, {Role: "loader", Name: "l1"}, {Role: "sidecar", Name: "s"}},
		verdicts, 3*time.Second)
	check := func(want string, events ...any) {
		t.Helper()
		if got := script(m, &now, events...); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	check("start o, start l0, start l1, start s", evBegin{})
	check("", evReady{0}, evReady{1}, evReady{2})
	check("start l1", evExited{2, Exit{Signal: syscall.SIGKILL}})
	check("", evReady{3}) // l1 has to come back first
	check("all ready", evReady{2})
	check("", evReady{2})
	check("start l0", evExited{1, Exit{Code: 2}})
	check("SIGTERM s", evExited{1, Exit{Code: 2}}, evStop{}) // l0 waits for its delay: it is not started any more
	check("", 999*time.Millisecond)
	check("SIGTERM l1", time.Millisecond) // the sidecar has used up its part
	check("SIGTERM o", evExited{2, Exit{}}, time.Second)
	check("", evExited{0, Exit{}})
	if m.done() {
		t.Fatal("done with a sidecar alive")
	}
	check("SIGKILL s", time.Second)
	check("", evExited{3, Exit{Signal: syscall.SIGKILL}})
	if !m.done() || m.result != Stopped {
		t.Fatalf("done %v, result %v", m.done(), m.result)
	}
}

// TestAFailureOutrunsAStop: who asks a failed run to stop still hears that it failed.
func TestAFailureOutrunsAStop(t *testing.T) {
	for code, want := range map[int]Result{0: Stopped, 1: Failed, 2: Stopped} {
		now := time.Unix(1000, 0)
		m := newMachine([]Child{{Role: "orchestrator", Name: "o"}}, verdicts, time.Second)
		script(m, &now, evBegin{}, evStop{}, evExited{0, Exit{Code: code, LastLine: "bad file"}})
		if !m.done() || m.result != want || (m.err != nil) != (want == Failed) {
			t.Errorf("exit %d: result %v, %v", code, m.result, m.err)
		}
	}
}

func TestExecFailureFailsTheRun(t *testing.T) {
	now := time.Unix(1000, 0)
	m := newMachine([]Child{{Role: "loader", Name: "l0"}, {Role: "sidecar", Name: "s"}}, verdicts, time.Second)
	script(m, &now, evBegin{})
	script(m, &now, evExited{1, Exit{Code: 2}}, evExited{1, Exit{Code: 2}}) // the second restart waits
	if got := script(m, &now, evStartFailed{1, errors.New("no memory")}); got != "failing, SIGTERM l0" {
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
