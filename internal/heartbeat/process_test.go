package heartbeat

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"millrace/internal/needs"
)

// fakeProc is a tree of proc files of process 7.
type fakeProc struct {
	t   *testing.T
	dir string
}

func newFakeProc(t *testing.T) fakeProc {
	f := fakeProc{t, t.TempDir()}
	f.thread(7, "S", 0, 0)
	f.pending(0, 0)
	return f
}

func (f fakeProc) write(name, text string) {
	f.t.Helper()
	path := filepath.Join(f.dir, "7", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

func (f fakeProc) thread(tid int, state string, ran, waited time.Duration) {
	f.write(fmt.Sprintf("task/%d/stat", tid), fmt.Sprintf("%d (mill) %s 1 7 7 0 -1 4194560 0 0 0", tid, state))
	f.write(fmt.Sprintf("task/%d/schedstat", tid), fmt.Sprintf("%d %d 9\n", ran, waited))
}

func (f fakeProc) pending(thread, shared uint64) {
	f.write(
		"status",
		fmt.Sprintf("Name:\tmill\nState:\tS\nSigPnd:\t%016x\nShdPnd:\t%016x\nSigBlk:\t0\n", thread, shared),
	)
}

func (f fakeProc) open() *process {
	f.t.Helper()
	p, err := openProcess(f.dir, 7)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = p.close() })
	return p
}

func TestThreadsAreCounted(t *testing.T) {
	const kill, stop, usr1 = 1 << (unix.SIGKILL - 1), 1 << (unix.SIGSTOP - 1), 1 << (unix.SIGUSR1 - 1)
	cases := map[string]struct {
		change func(f fakeProc)
		want   Threads
	}{
		"asleep":         {func(fakeProc) {}, Threads{}},
		"runnable":       {func(f fakeProc) { f.thread(8, "R", 3, 40) }, Threads{Runnable: true, Ran: 3, Waited: 40}},
		"blocked":        {func(f fakeProc) { f.thread(8, "D", 3, 0) }, Threads{Blocked: true, Ran: 3}},
		"stopped":        {func(f fakeProc) { f.thread(8, "T", 0, 0) }, Threads{Doomed: true}},
		"traced":         {func(f fakeProc) { f.thread(8, "t", 0, 0) }, Threads{}},
		"a thread ended": {func(f fakeProc) { f.thread(8, "X", 1, 2) }, Threads{Ran: 1, Waited: 2}},
		"to be killed":   {func(f fakeProc) { f.pending(kill, 0) }, Threads{Doomed: true}},
		"to be stopped":  {func(f fakeProc) { f.pending(0, stop|usr1) }, Threads{Doomed: true}},
		"another signal": {func(f fakeProc) { f.pending(usr1, usr1) }, Threads{}},
		"all added": {func(f fakeProc) { f.thread(7, "S", 1, 10); f.thread(8, "S", 2, 20) },
			Threads{Ran: 3, Waited: 30}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFakeProc(t)
			p := f.open()
			c.change(f)
			if got := p.threads(); got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

// TestTheThreadsAreAskedInTime: every few looks without a beat, and more rarely without progress.
func TestTheThreadsAreAskedInTime(t *testing.T) {
	var answer Threads
	asked := 0
	words := new(Words)
	m := NewMonitor(words, 7, Kernel{
		IsDown: func() bool { return false }, HasRun: func() bool { return false },
		Threads: func() Threads { asked++; return answer },
	})
	words.begun.Store(1)
	words.progress.Store(1)
	answer = Threads{Runnable: true, Ran: 1, Waited: 1}
	m.Sample()
	asked = 0
	for range 2 * askStill { // it beats, without progress
		words.beats.Add(1)
		if r := m.Sample(); r.Waits {
			t.Fatalf("with beats: %+v", r)
		}
	}
	if asked != 2 {
		t.Errorf("while it beats the kernel was asked %d times", asked)
	}
	words.progress.Add(1)
	words.beats.Add(1)
	m.Sample()
	for range askLate - 1 {
		if m.Sample().Waits {
			t.Fatal("it waits before the kernel was asked")
		}
	}
	for i := range 2 * askLate {
		answer.Ran, answer.Waited = answer.Ran+1, answer.Waited+9
		if r := m.Sample(); !r.Waits || r.Slow != 10 && i >= askLate {
			t.Fatalf("%+v, want a process that waits and gets a tenth of the time", r)
		}
	}
	if asked != 2+2 {
		t.Errorf("without beats the kernel was asked %d times", asked-2)
	}
	answer.Runnable = false
	for range askLate {
		m.Sample()
	}
	if r := m.Sample(); r.Waits || r.Slow != 1 {
		t.Errorf("asleep without a beat: %+v", r)
	}
}

// lowest gives way to every other process of the first processor. It starts this program anew, so that all its threads
// inherit that.
func lowest() {
	runtime.LockOSThread()
	var one unix.CPUSet
	one.Set(0)
	idle := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}
	err := errors.Join(unix.SchedSetaffinity(0, &one), unix.SchedSetAttr(0, &idle, 0), os.Unsetenv(lowEnv))
	if err == nil {
		err = syscall.Exec("/proc/self/exe", os.Args, os.Environ())
	}
	panic(err)
}

// TestAStarvedProcessIsLate: a process that gets less than a hundredth of a processor is never silent. Stopped or
// killed, it is silent although it gets no processor to obey the signal.
func TestAStarvedProcessIsLate(t *testing.T) {
	needs.Require(t, "two-processors") // one for the watcher
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
		t.Setenv(lowEnv, "1")
		p := start(t, 4)
		t.Setenv(lowEnv, "")
		m, err := Files{}.Open(p.path)
		if err != nil {
			t.Fatal(err)
		}
		j := NewJudge(time.Hour, new(Caution))
		for m.Sample().Beats < 10 { // the test binary's own deadline ends the loop
			time.Sleep(Look)
		}
		release := occupy(t, 0)
		var worst time.Duration
		ran := time.Now()
		begin := time.Now()
		enough := func() bool { return time.Since(begin) > 3*time.Second && worst >= 2*overdue }
		for ; !enough() && time.Since(begin) < 20*time.Second; time.Sleep(Look) {
			r := m.Sample()
			if v := j.Look(time.Now(), r); v != Alive {
				t.Fatalf("after %v the starved process is %v: %+v", time.Since(begin), v, r)
			}
			if r.Ran || m.missed == 0 {
				ran = time.Now()
			}
			worst = max(worst, time.Since(ran))
		}
		if worst < 2*overdue {
			t.Errorf("the process was without a processor for %v at most, too short for this test", worst)
		}
		if err := p.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if v, after := watch(m, j, 10*time.Second); v != Silent {
			t.Errorf("starved and after %v it is %v after %v", sig, v, after)
		}
		release()
		_ = m.Close()
	}
}

// occupy keeps one processor busy with a process of normal priority until the returned function is called. A goroutine
// would not do: the runtime interrupts it every few milliseconds.
func occupy(t *testing.T, cpu int) (release func()) {
	t.Helper()
	busy := exec.Command("sh", "-c", "while kill -0 $0; do for i in 0 1 2 3 4 5 6 7 8 9; do :; done; done",
		strconv.Itoa(os.Getpid())) // it ends with this process
	if err := busy.Start(); err != nil {
		t.Fatal(err)
	}
	release = sync.OnceFunc(func() {
		_ = busy.Process.Kill()
		_ = busy.Wait()
	})
	t.Cleanup(release)
	var one unix.CPUSet
	one.Set(cpu)
	if err := unix.SchedSetaffinity(busy.Process.Pid, &one); err != nil {
		t.Fatal(err)
	}
	return release
}
