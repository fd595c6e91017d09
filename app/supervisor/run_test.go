package supervisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"millrace/internal/seam"
)

// text is a buffer for the supervisor's stderr that a test may read at any time.
type text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (x *text) Write(b []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.Write(b)
}

func (x *text) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.String()
}

func child(role, name, part, dir string) Child {
	return Child{Role: role, Name: name, Args: []string{part, dir}, Env: []string{"NAME=" + name}}
}

// house is a supervisor that runs in this process.
type house struct {
	t      *testing.T
	dir    string
	stderr *text
	stop   context.CancelFunc
	ended  chan struct{}
	result Result
	err    error
}

func startHouse(t *testing.T, cfg Config, parts ...[3]string) *house {
	t.Helper()
	h := &house{t: t, dir: filepath.Join(t.TempDir(), "run [1]"), stderr: &text{}, ended: make(chan struct{})}
	for _, p := range parts {
		cfg.Children = append(cfg.Children, child(p[0], p[1], p[2], h.dir))
	}
	cfg.RunDir, cfg.Stderr = h.dir, h.stderr
	ctx, cancel := context.WithCancel(context.Background())
	h.stop = cancel
	go func() { // ends with Run; wait and the cleanup below wait for it
		defer close(h.ended)
		h.result, h.err = Run(ctx, cfg)
	}()
	t.Cleanup(func() { cancel(); <-h.ended })
	return h
}

func (h *house) wait() {
	h.t.Helper()
	select {
	case <-h.ended:
	case <-time.After(time.Minute):
		h.t.Fatalf("the run did not end; stderr:\n%s", h.stderr)
	}
}

// role waits until a child runs after at least this many restarts.
func (h *house) role(name string, restarts int) Role {
	h.t.Helper()
	var found Role
	eventually(h.t, name+" running", func() bool {
		roles, _ := ReadRoles(h.dir)
		for _, r := range roles {
			if r.Name == name && r.State == Running && r.Restarts >= restarts {
				found = r
				return true
			}
		}
		return false
	})
	return found
}

func (h *house) leavesNothing() {
	h.t.Helper()
	if _, err := os.Stat(RuntimeDir(h.dir)); !errors.Is(err, fs.ErrNotExist) {
		h.t.Errorf("runtime directory is still there: %v", err)
	}
	if s, _ := filepath.Glob(filepath.Join(escapeGlob(h.dir), "rank-*.sock")); len(s) > 0 {
		h.t.Errorf("sockets left: %v", s)
	}
}

func gone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

func TestKilledChildIsRestarted(t *testing.T) {
	ready := make(chan struct{})
	h := startHouse(
		t,
		Config{OnReady: func() { close(ready) }},
		[3]string{
			"orchestrator",
			"orchestrator",
			"serve",
		},
		[3]string{"loader", "loader-0", "serve"},
		[3]string{"sidecar", "sidecar", "serve"},
	)
	<-ready // a second close would panic
	pids := []int{h.role("orchestrator", 0).Pid, h.role("sidecar", 0).Pid}
	for n := 1; n <= 3; n++ {
		r := h.role("loader-0", n-1)
		if err := syscall.Kill(r.Pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	last := h.role("loader-0", 3)
	eventually(t, "the term", func() bool { return h.role("loader-0", 3).Term == 7 })
	if !strings.Contains(h.stderr.String(), "loader-0 died (SIGKILL); restarted") {
		t.Errorf("the user was not told:\n%s", h.stderr)
	}
	h.stop()
	h.wait()
	if h.result != Stopped || h.err != nil {
		t.Fatalf("got %v, %v", h.result, h.err)
	}
	for _, pid := range append(pids, last.Pid) {
		if !gone(pid) {
			t.Errorf("process %d is left", pid)
		}
	}
	left, _ := os.ReadFile(filepath.Join(h.dir, "left"))
	if want := "sidecar\nloader-0\norchestrator\n"; string(left) != want {
		t.Errorf("left in the order %q, want %q", left, want)
	}
	h.leavesNothing()
}

func TestChildThatAlwaysDiesIsGivenUp(t *testing.T) {
	h := startHouse(t, Config{}, [3]string{"loader", "loader-0", "blow"}, [3]string{"sidecar", "sidecar", "serve"})
	h.wait()
	var failed *FailedError
	if h.result != Failed || !errors.As(h.err, &failed) || failed.Child.Name != "loader-0" {
		t.Fatalf("got %v, %v", h.result, h.err)
	}
	for _, want := range []string{"died 8 times", "exit status 2", "panic: always", "crash-loader-0-8.log"} {
		if !strings.Contains(h.err.Error(), want) {
			t.Errorf("%q lacks %q", h.err, want)
		}
	}
	h.leavesNothing()
}

// verdicts judges exits like `up`.
func verdicts(c Child, e Exit) Verdict {
	switch {
	case c.Role != "orchestrator" || e.Signal != 0:
		return Restart
	case e.Code == 0:
		return Finish
	case e.Code == 1:
		return Fail
	case e.Code == 3:
		return Again
	case e.Code == 4:
		return Await
	}
	return Restart
}

func TestFinished(t *testing.T) {
	h := startHouse(t, Config{Final: verdicts}, [3]string{"orchestrator", "orchestrator", "finish"},
		[3]string{"sidecar", "sidecar", "serve"})
	h.wait()
	if h.result != Finished || h.err != nil {
		t.Fatalf("got %v, %v", h.result, h.err)
	}
	h.leavesNothing()
}

func TestFailedReasonIsTheLastLine(t *testing.T) {
	h := startHouse(t, Config{Final: verdicts}, [3]string{"sidecar", "sidecar", "serve"},
		[3]string{"orchestrator", "orchestrator", "fail"})
	h.wait()
	if h.result != Failed || h.err == nil || h.err.Error() != "source web: no such file" {
		t.Fatalf("got %v, %v", h.result, h.err)
	}
	h.leavesNothing()
}

func TestPanicIsOneLine(t *testing.T) {
	h := startHouse(t, Config{}, [3]string{"loader", "loader-0", "crash"})
	h.role("loader-0", 1)
	stack := filepath.Join(h.dir, "crash-loader-0-1.log")
	want := fmt.Sprintf(
		"reading web/part-0.jsonl\nloader-0 crashed (panic: boom in the decoder); restarted; stack in %s\n", stack)
	if got := h.stderr.String(); got != want {
		t.Errorf("the user saw\n%s\nwant\n%s", got, want)
	}
	b, err := os.ReadFile(stack)
	if err != nil || !bytes.Contains(b, []byte("goroutine ")) || !bytes.Contains(b, []byte("main_test.go")) {
		t.Errorf("crash file: %v\n%s", err, b)
	}
}

// handClock advances only by a call of the test. So no grace ends too early on a busy machine.
type handClock struct {
	seam.System
	mu    sync.Mutex
	now   time.Time
	waits []wait
}

type wait struct {
	due time.Time
	c   chan time.Time
}

func (h *handClock) Now() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now
}

func (h *handClock) After(d time.Duration) <-chan time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := wait{h.now.Add(d), make(chan time.Time, 1)}
	if d <= 0 {
		w.c <- h.now
	}
	h.waits = append(h.waits, w)
	return w.c
}

func (h *handClock) move(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now = h.now.Add(d)
	for _, w := range h.waits {
		if !w.due.After(h.now) {
			select {
			case w.c <- h.now:
			default: // the event is in the channel already
			}
		}
	}
}

func TestStubbornChildIsKilledAfterTheGrace(t *testing.T) {
	clock := &handClock{now: time.Now()}
	h := startHouse(t, Config{StopGrace: 10 * time.Second, Clock: clock}, [3]string{"loader", "loader-0", "serve"},
		[3]string{"sidecar", "sidecar", "stubborn"})
	pid := h.role("sidecar", 0).Pid
	h.role("loader-0", 0)
	h.stop()
	eventually(t, "the stop", func() bool {
		roles, _ := ReadRoles(h.dir)
		return len(roles) > 0 && roles[0].State == Stopping
	})
	clock.move(5 * time.Second) // the sidecar's part of the grace
	eventually(t, "the loader's leave", func() bool {
		left, _ := os.ReadFile(filepath.Join(h.dir, "left"))
		return len(left) > 0
	})
	if gone(pid) {
		t.Error("the sidecar was killed before the grace was over")
	}
	clock.move(5 * time.Second)
	h.wait()
	if h.result != Stopped || h.err != nil || !gone(pid) {
		t.Fatalf("got %v, %v; gone: %v", h.result, h.err, gone(pid))
	}
	if left, _ := os.ReadFile(filepath.Join(h.dir, "left")); string(left) != "loader-0\n" {
		t.Errorf("the loader was not asked before it was killed: %q", left)
	}
}

func TestSecondUpIsRefused(t *testing.T) {
	h := startHouse(t, Config{}, [3]string{"loader", "loader-0", "serve"})
	pid := h.role("loader-0", 0).Pid
	_, err := Run(context.Background(), Config{RunDir: h.dir})
	if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), fmt.Sprintf("(pid %d)", os.Getpid())) {
		t.Fatalf("got %v", err)
	}
	if r := h.role("loader-0", 0); r.Pid != pid {
		t.Errorf("the first run was disturbed: pid %d, then %d", pid, r.Pid)
	}
}

// TestAnyModeIsRepaired: a run directory becomes usable if its mode excludes its owner.
func TestAnyModeIsRepaired(t *testing.T) {
	for _, mode := range []os.FileMode{0, 0o500, 0o755} {
		dir := t.TempDir()
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		lock, err := lockDir(dir, seam.System{}, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		lock.Close()
		if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != mode|0o700 {
			t.Errorf("mode %v became %v, %v", mode, st.Mode(), err)
		}
	}
}

func TestStaleLeftoversAreRemoved(t *testing.T) {
	dir := t.TempDir()
	for _, f := range []string{"run/roles.json", "rank-3.sock", "journal"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, f)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, f), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	looked := false
	prepare := func() error { return os.WriteFile(filepath.Join(RuntimeDir(dir), "config.json"), nil, 0o600) }
	_, err := Run(
		ctx,
		Config{
			RunDir:   dir,
			Prepare:  prepare,
			Stderr:   &text{},
			Children: []Child{child("loader", "loader-0", "serve", dir)},
			OnReady: func() {
				if _, err := os.Stat(filepath.Join(RuntimeDir(dir), "config.json")); err != nil {
					t.Errorf("the prepared file: %v", err)
				}
				info, err := os.Stat(RuntimeDir(dir))
				looked = err == nil && info.Mode().Perm() == 0o700
				if _, err := os.Stat(filepath.Join(dir, "rank-3.sock")); !errors.Is(err, fs.ErrNotExist) {
					t.Error("a stale socket survived the start")
				}
				cancel()
			},
		},
	)
	if err != nil || !looked {
		t.Fatalf("err %v, runtime directory private: %v", err, looked)
	}
	if _, err := os.Stat(filepath.Join(dir, "journal")); err != nil {
		t.Errorf("the journal went with the leftovers: %v", err)
	}
}

// TestAStoppedProcessIsReplaced: a fresh process runs in the place of a stopped one. Both are gone at the end of the
// run.
func TestAStoppedProcessIsReplaced(t *testing.T) {
	h := startHouse(t, Config{}, [3]string{"orchestrator", "orchestrator", "fencer"},
		[3]string{"loader", "loader-0", "serve"})
	old := h.role("loader-0", 0).Pid
	if err := syscall.Kill(old, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := replaceFile(filepath.Join(h.dir, "fence"), fmt.Appendf(nil, "loader-0 %d", old)); err != nil {
		t.Fatal(err)
	}
	fresh := h.role("loader-0", 1).Pid
	if fresh == old || gone(old) {
		t.Fatalf("process %d runs instead of %d; gone: %v", fresh, old, gone(old))
	}
	h.stop()
	h.wait()
	if h.result != Stopped || h.err != nil || !gone(old) || !gone(fresh) {
		t.Fatalf("got %v, %v; gone: %v, %v", h.result, h.err, gone(old), gone(fresh))
	}
	h.leavesNothing()
}

// TestAFullDiskIsWaitedFor: the missing thing is reported once and shown, and the child serves when it is available.
func TestAFullDiskIsWaitedFor(t *testing.T) {
	h := startHouse(t, Config{Final: verdicts}, [3]string{"orchestrator", "orchestrator", "full"},
		[3]string{"loader", "loader-0", "serve"})
	var lacking Role
	eventually(t, "some lives", func() bool {
		roles, _ := ReadRoles(h.dir)
		if len(roles) > 0 {
			lacking = roles[0]
		}
		return lacking.Restarts >= 4 && lacking.Lacks != ""
	})
	if !strings.HasSuffix(lacking.Lacks, ": disk full") {
		t.Errorf("%+v", lacking)
	}
	if err := os.WriteFile(filepath.Join(h.dir, "room"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := h.role("orchestrator", 4); r.Lacks != "" {
		t.Errorf("%+v", r)
	}
	text := h.stderr.String()
	if said := strings.Count(text, "disk full"); said != 1 {
		t.Errorf("said %d times:\n%s", said, text)
	}
	if said := strings.Count(text, "orchestrator cannot continue now"); said != 1 {
		t.Errorf("said %d times:\n%s", said, text)
	}
	if said := strings.Count(text, "no room for the reserve"); said != 1 {
		t.Errorf("said %d times:\n%s", said, text)
	}
}

// TestRolesTakeNoFurtherRoom: two files take turns, so the file can be rewritten on a full disk.
func TestRolesTakeNoFurtherRoom(t *testing.T) {
	path := filepath.Join(t.TempDir(), "roles.json")
	inodes := map[uint64]bool{}
	for _, size := range []int{10, 0, page - 1, page, 3 * page, 5} {
		b := bytes.Repeat([]byte{'x'}, size)
		if err := exchangeFile(path, b); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(bytes.TrimRight(got, " \n"), b) || len(got)%page != 0 || got[len(got)-1] != '\n' {
			t.Errorf("%d bytes: %v, %d read", size, err, len(got))
		}
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		inodes[st.Sys().(*syscall.Stat_t).Ino] = true
	}
	if len(inodes) != 2 {
		t.Errorf("%d files were made", len(inodes))
	}
}
