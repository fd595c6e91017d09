package heartbeat

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// childEnv names a directory in which the test binary beats. burnEnv is the number of its busy goroutines. lowEnv makes
// it give way to every other process of the host's first processor.
const (
	childEnv = "MILLRACE_TEST_BEAT"
	burnEnv  = "MILLRACE_TEST_BURN"
	lowEnv   = "MILLRACE_TEST_LOW"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		if os.Getenv(lowEnv) != "" {
			lowest()
		}
		beat(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

// beat plays a process with a page. It prints the page's name and runs until its input ends.
func beat(dir string) {
	p, err := Files{}.Create(Path(dir, "loader-0", os.Getpid()))
	if err != nil {
		panic(err)
	}
	for range len(os.Getenv(burnEnv)) {
		go burn(p)
	}
	p.Begin() // a request is pending all the time
	go p.Run(context.Background())
	fmt.Println(p.Path())
	_, _ = os.Stdin.Read(make([]byte, 1))
	_ = p.Close()
}

func burn(p *Page) {
	for x := uint64(1); ; x = x*6364136223846793005 + 1 {
		if x&0xfffff == 1 {
			p.Progress()
		}
	}
}

// child is a process that beats.
type child struct {
	cmd  *exec.Cmd
	path string
	stop func() // ends it without a signal
}

func start(t testing.TB, burning int) child {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+dir, burnEnv+"="+strings.Repeat("x", burning))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	path, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return child{cmd, strings.TrimSpace(path), func() {
		in.Close()
		_ = cmd.Wait()
	}}
}

// watch looks until the verdict is not Alive, for at most d, and returns the verdict and its time.
func watch(m *Monitor, j *Judge, d time.Duration) (Verdict, time.Duration) {
	begin := time.Now()
	for {
		if v := j.Look(time.Now(), m.Sample()); v != Alive {
			return v, time.Since(begin)
		}
		if time.Since(begin) > d {
			return Alive, d
		}
		time.Sleep(Look)
	}
}

// TestADeadProcessAndAStoppedOneAreSilent. A process that continues is alive again.
func TestADeadProcessAndAStoppedOneAreSilent(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
		p := start(t, 0)
		m, err := Files{}.Open(p.path)
		if err != nil {
			t.Fatal(err)
		}
		j := NewJudge(time.Hour, new(Caution))
		r := m.Sample()
		for m.Sample().Beats < r.Beats+10 { // the test binary's own deadline ends the loop
			time.Sleep(Look)
		}
		if r := m.Sample(); r.Pid != p.cmd.Process.Pid || r.Period != Active || r.Pending != 1 {
			t.Fatalf("its page says %+v", r)
		}
		if err := p.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if v, _ := watch(m, j, 20*time.Second); v != Silent {
			t.Fatalf("after %v it is %v", sig, v)
		}
		m.kernel.HasRun()
		if m.kernel.HasRun() {
			t.Errorf("after %v it ran", sig)
		}
		if sig == syscall.SIGSTOP {
			was := m.Sample().Beats
			_ = p.cmd.Process.Signal(syscall.SIGCONT)
			r := m.Sample()
			ran := r.Ran // a sample tells whether the process ran since the one before
			for ; r.Beats == was; ran = ran || r.Ran {
				time.Sleep(Look)
				r = m.Sample()
			}
			if !ran && !m.kernel.HasRun() {
				t.Error("after it was let go on it did not run")
			}
			if v := j.Look(time.Now(), m.Sample()); v != Alive {
				t.Fatalf("after it was let go on it is %v", v)
			}
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestBadPagesAreRefused: a file that is no page, and a page of a dead process.
func TestBadPagesAreRefused(t *testing.T) {
	dir := t.TempDir()
	p := start(t, 0)
	alien := Path(dir, "loader-0", os.Getpid())
	target, err := os.Readlink(p.path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, alien); err != nil {
		t.Fatal(err)
	}
	short, empty := Path(dir, "short", 7), Path(dir, "empty", 7)
	if err := errors.Join(os.WriteFile(short, []byte("beat"), 0o600), os.WriteFile(empty, make([]byte, Size), 0o600),
		syscall.Mkfifo(Path(dir, "pipe", 7), 0o600)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		alien:                               "belongs to process",
		short:                               "no heartbeats",
		empty:                               "no heartbeats",
		Path(dir, "pipe", 7):                "no heartbeats",
		Path(dir, "nobody", 7):              "no such file",
		filepath.Join(dir, "loader-0.beat"): "want a name like",
	} {
		if m, err := (Files{}).Open(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v, want an error that says %q", path, m, err, want)
		}
	}
	if _, err := (Files{}).Create(Path(dir, "loader-0", 1)); err == nil {
		t.Error("the page of another process was made")
	}
	p.stop()
	if _, err := os.Lstat(p.path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after it left its page is there: %v", err)
	}
}

// TestAPageOutlivesItsOwner: a monitor still reads it, and its name is gone.
func TestAPageOutlivesItsOwner(t *testing.T) {
	p := start(t, 0)
	m, err := Files{}.Open(p.path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for m.Sample().Beats == 0 { // until it beats
		runtime.Gosched()
	}
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	_ = m.Sample()
	if r := m.Sample(); r.Pid != p.cmd.Process.Pid || r.Beats == 0 || !r.Down {
		t.Errorf("the page of a dead process says %+v", r)
	}
	if _, err := (Files{}).Open(p.path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("opening the page of a dead process: %v", err)
	}
}

func TestNoPageCountsNothing(t *testing.T) {
	var p *Page
	p.Begin()
	p.Progress()
	p.End()
	if p.Path() != "" || p.Close() != nil {
		t.Error("no page has a name")
	}
}
