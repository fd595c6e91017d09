package mailbox

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"millrace/app/cluster"
	"millrace/app/supervisor"
	"millrace/internal/needs"
	"millrace/orchestrator/lease"
	"millrace/orchestrator/placer/placertest"
)

// The test binary plays the program `millrace` for the actors of Ray. argv[1] names the part.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 {
		switch os.Args[1] {
		case "loader":
			os.Exit(load())
		case "mailbox":
			os.Exit(keep())
		}
	}
	goleak.VerifyTestMain(m)
}

// argument returns the value of a flag of this process.
func argument(args []string, flag string) string {
	if i := slices.Index(args, flag); i > 0 && i+1 < len(args) {
		return args[i+1]
	}
	return ""
}

// load plays a loader. It notes that it was asked to leave.
func load() int {
	ctx, leave, err := supervisor.WithParent(context.Background())
	if err != nil {
		return 3
	}
	defer leave()
	asked, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	fmt.Println("ready")
	<-asked.Done()
	if ctx.Err() == nil {
		note := filepath.Join(argument(os.Args, "--run-dir"), "asked-"+placertest.Identity(os.Getpid()))
		_ = os.WriteFile(note, nil, 0o600)
	}
	return 0
}

// keep plays `millrace mailbox`.
func keep() int {
	f, err := cluster.Load(argument(os.Args, "--cluster"))
	if err != nil {
		return 3
	}
	etcd, err := lease.Dial(context.Background(), f.Etcd())
	if err == nil {
		err = Keep(context.Background(), etcd, f.Etcd(), os.Stdin, os.Stdout)
	}
	if err != nil {
		return 3
	}
	return 0
}

// pidOf returns the process of a loader.
func pidOf(name string) (int, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if program, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err != nil || program != self {
			continue
		}
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		args := strings.Split(string(line), "\x00")
		if len(args) > 1 && args[1] == "loader" && argument(args, "--name") == name && placertest.Identity(pid) != "" {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("%s has no process", name)
}

// TestContractOnRay needs a Python with Ray and numpy. `make test-ray` names one, in namespaces of its own.
func TestContractOnRay(t *testing.T) {
	needs.Require(t, "MILLRACE_RAY")
	python := os.Getenv("MILLRACE_RAY")
	l, dir := newLeader(t), t.TempDir()
	startRay(t, python, l.cfg.Endpoints[0], dir)
	placertest.Run(t, func(t *testing.T) placertest.Engine {
		return placertest.Engine{
			Placer: l.placer(), Name: Engine, Role: "loader", Hosts: 1,
			Identity: func(name string) (string, error) {
				pid, err := pidOf(name)
				return placertest.Identity(pid), err
			},
			Kill: func(name string) error {
				pid, err := pidOf(name)
				if err != nil {
					return err
				}
				return syscall.Kill(pid, syscall.SIGKILL)
			},
			Asked: func(identity string) bool {
				found, _ := filepath.Glob(filepath.Join(dir, "*", "asked-"+identity))
				return len(found) > 0
			},
			Patience: 3 * time.Minute, Calm: 2 * time.Second,
		}
	})
}

// startRay runs a Ray with the keeper of a run until the end of the test.
func startRay(t *testing.T, python, etcd, dir string) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	client, err := filepath.Abs("../../../clients/python/src")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "testdata/keep.py", etcd, dir)
	cmd.Env = append(os.Environ(), "MILLRACE="+self, "PYTHONPATH="+client, "RAY_USAGE_STATS_ENABLED=0")
	cmd.Stderr = t.Output()
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		input.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
		if pid, err := pidOf("loader-0"); err == nil {
			t.Errorf("process %d is left", pid)
		}
	})
	lines := bufio.NewScanner(output)
	for lines.Scan() && lines.Text() != "kept" {
		continue // Ray may print other lines
	}
	if lines.Text() != "kept" {
		t.Fatal("the keeper has not started")
	}
	go func() { _, _ = io.Copy(io.Discard, output) }() // ends with the process
}
