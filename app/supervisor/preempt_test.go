package supervisor

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// newPreempted returns a machine of an orchestrator and a sidecar that runs with a grace of 25 s for trainers.
func newPreempted(t *testing.T, now *time.Time) (check func(want string, events ...any), m *machine) {
	t.Helper()
	m = newMachine([]Child{{Role: "orchestrator", Name: "o"}, {Role: "sidecar", Name: "s"}}, nil, verdicts,
		3*time.Second, 25*time.Second)
	check = func(want string, events ...any) {
		t.Helper()
		if got := script(m, now, events...); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	check("start o, start s, all ready", evBegin{}, evReady{0, 100}, evReady{1, 101})
	return check, m
}

func TestTrainersHaveAGrace(t *testing.T) {
	now := time.Unix(1000, 0)
	check, _ := newPreempted(t, &now)
	check("", evTrainers{1, 101, 2}, evPreempt{}, evPreempt{})
	check("", 20*time.Second, evTrainers{1, 101, 1}, 4*time.Second)
	check("ending, SIGINT s", time.Second)
}

func TestAPreemptedRunStopsWhenTrainersHaveLeft(t *testing.T) {
	now := time.Unix(1000, 0)
	check, _ := newPreempted(t, &now)
	check("", evTrainers{1, 101, 2}, evPreempt{}, time.Second, evTrainers{1, 101, 0})
	check("", time.Second, evTrainers{1, 101, 1}, evTrainers{1, 101, 0}, time.Second)
	check("ending, SIGINT s", time.Second)
}

// TestAPreemptedSidecarIsReplaced: the signal reached the sidecar, too. Its trainers connect to the next one.
func TestAPreemptedSidecarIsReplaced(t *testing.T) {
	now := time.Unix(1000, 0)
	check, _ := newPreempted(t, &now)
	check("start s", evTrainers{1, 101, 2}, evPreempt{}, evTrainers{1, 101, 0},
		evExited{1, 101, Exit{Signal: syscall.SIGTERM}})
	check("", 10*time.Second)
	check("", evReady{1, 111}, time.Second, evTrainers{1, 111, 2}, 10*time.Second)
	check("ending, SIGINT s", evTrainers{1, 111, 0}, 2*time.Second)
}

func TestAPreemptionWithoutTrainersStopsAtOnce(t *testing.T) {
	now := time.Unix(1000, 0)
	check, _ := newPreempted(t, &now)
	check("ending, SIGINT s", evPreempt{})
	check, _ = newPreempted(t, &now)
	check("", evTrainers{1, 101, 1}, evTrainers{1, 101, 0}, time.Minute)
	check("ending, SIGINT s", evPreempt{})
}

func TestASecondSignalEndsTheGrace(t *testing.T) {
	now := time.Unix(1000, 0)
	check, _ := newPreempted(t, &now)
	check("", evTrainers{1, 101, 2}, evPreempt{})
	check("ending, SIGINT s", evStop{})
	check("SIGKILL s, SIGKILL o", evKill{})
}

// TestAShortageOfProcessesPasses: each child is started again until the host has a process for it. Another error at the
// start of a first child ends the run.
func TestAShortageOfProcessesPasses(t *testing.T) {
	for _, shortage := range []syscall.Errno{syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE} {
		now := time.Unix(1000, 0)
		_, m := newPreempted(t, &now)
		_ = m.step(now, evExited{1, 101, Exit{Signal: syscall.SIGKILL}})
		starts := 0
		var told []string
		err := fmt.Errorf("fork/exec millrace: %w", shortage)
		for range 200 {
			now = now.Add(50 * time.Millisecond)
			for _, a := range m.step(now, evTick{}) {
				if _, ok := a.(acStart); !ok {
					continue
				}
				starts++
				for _, a := range m.step(now, evStartFailed{1, err}) {
					told = append(told, a.(acNotice).line)
				}
			}
			if starts == 0 { // the first start followed the death at once
				_ = m.step(now, evStartFailed{1, err})
				starts++
			}
		}
		if starts < 5 || starts > 15 || len(told) > 1 || m.stopping {
			t.Errorf("%v: %d starts in 10 s, told %q, stopping %v", shortage, starts, told, m.stopping)
		}
		if r := m.roles()[1]; !strings.Contains(r.Lacks, shortage.Error()) {
			t.Errorf("%v: status shows %q", shortage, r.Lacks)
		}
		_ = m.step(now, evStarted{1, 200})
		if r := m.roles()[1]; r.Lacks != "" || r.Pid != 200 {
			t.Errorf("%v: after the start, status shows %+v", shortage, r)
		}
	}
	now := time.Unix(1000, 0)
	_, m := newPreempted(t, &now)
	_ = m.step(now, evExited{1, 101, Exit{Signal: syscall.SIGKILL}})
	_ = m.step(now, evStartFailed{1, errors.New("exec format error")})
	if !m.stopping || m.result != Failed {
		t.Error("the run goes on without its sidecar")
	}
}

// TestARoleWithoutThreadsIsNoFault: it is started again without limit.
func TestARoleWithoutThreadsIsNoFault(t *testing.T) {
	for _, line := range []string{
		"runtime/cgo: pthread_create failed: Resource temporarily unavailable",
		"runtime: failed to create new OS thread (have 5 already; errno=11)",
	} {
		out := &lineWriter{out: &syncWriter{w: t.Output()}, dir: t.TempDir(), name: "s"}
		_, _ = out.Write([]byte(line + "\nSIGABRT: abort\ngoroutine 1 [running]:\n"))
		out.finish()
		if !out.starved || out.last != line {
			t.Errorf("%q: starved %v, last line %q", line, out.starved, out.last)
		}
	}
	now := time.Unix(1000, 0)
	_, m := newPreempted(t, &now)
	for range 100 {
		_ = m.step(now, evExited{1, m.children[1].pid, Exit{Code: 2, Starved: true, LastLine: "no thread"}})
		now = now.Add(2 * time.Second)
		_ = m.step(now, evTick{})
		_ = m.step(now, evStarted{1, m.children[1].pid + 1})
	}
	if m.stopping {
		t.Errorf("the run ended: %v", m.err)
	}
}

func TestThreadsAreReserved(t *testing.T) {
	wanted := threads(t) + 20
	reserveThreads(wanted)
	if got := threads(t); got < wanted {
		t.Errorf("%d threads, want %d", got, wanted)
	}
}

// threads returns the number of threads of this process.
func threads(t *testing.T) int {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(tasks)
}
