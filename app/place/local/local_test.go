package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"millrace/app/supervisor"
	"millrace/orchestrator/placer"
	"millrace/orchestrator/placer/placertest"
)

// The test binary plays the children of a real supervisor. argv[1] names the part.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 {
		switch os.Args[1] {
		case "worker":
			os.Exit(work(os.Args[2]))
		case "orchestrator":
			os.Exit(orchestrate(os.Args[2]))
		}
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // the children of a race build would each sleep a second
	goleak.VerifyTestMain(m)
}

// work plays a loader. It notes that it was asked to leave.
func work(runDir string) int {
	life, err := supervisor.Attach(runDir)
	if err != nil {
		return 3
	}
	ctx, cancel := life.Context(context.Background())
	defer cancel()
	_ = life.ReportReady()
	<-ctx.Done()
	if errors.Is(context.Cause(ctx), supervisor.ErrStopped) {
		_ = os.WriteFile(askedFile(runDir, placertest.Identity(os.Getpid())), nil, 0o600)
	}
	return 0
}

func askedFile(runDir, mark string) string { return filepath.Join(runDir, "asked-"+mark) }

// call is a request of the test to the orchestrator that it plays, and answer the reply.
type call struct {
	Cancelled bool
	Desired   *placer.Desired // nil: observe
}

type answer struct {
	Error     string
	Cancelled bool
	Instances []placer.Instance
}

func callSocket(runDir string) string { return filepath.Join(runDir, "calls.sock") }

// orchestrate plays the orchestrator: it passes the calls of the test to the placer under test.
func orchestrate(runDir string) int {
	life, err := supervisor.Attach(runDir)
	if err != nil {
		return 3
	}
	ctx, cancel := life.Context(context.Background())
	defer cancel()
	l, err := net.Listen("unix", callSocket(runDir))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3
	}
	p := New(life, runDir, "here")
	go func() { // ends with the process
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(ctx, p, c)
		}
	}()
	_ = life.ReportReady()
	<-ctx.Done()
	return 0
}

func serve(ctx context.Context, p *Placer, c net.Conn) {
	defer c.Close()
	var in call
	if json.NewDecoder(c).Decode(&in) != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if in.Cancelled {
		cancel()
	}
	var out answer
	var err error
	if in.Desired != nil {
		err = p.Apply(ctx, *in.Desired)
	} else {
		out.Instances, err = p.Observe(ctx)
	}
	if err != nil {
		out.Error, out.Cancelled = err.Error(), errors.Is(err, context.Canceled)
	}
	_ = json.NewEncoder(c).Encode(out)
}

// remote is the placer in the orchestrator's process.
type remote struct{ runDir string }

func (r remote) ask(ctx context.Context, in call) ([]placer.Instance, error) {
	in.Cancelled = ctx.Err() != nil
	c, err := net.Dial("unix", callSocket(r.runDir))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var out answer
	if err := json.NewEncoder(c).Encode(in); err != nil {
		return nil, err
	}
	if err := json.NewDecoder(c).Decode(&out); err != nil {
		return nil, err
	}
	switch {
	case out.Cancelled:
		return nil, fmt.Errorf("%s: %w", out.Error, context.Canceled)
	case out.Error != "":
		return nil, errors.New(out.Error)
	}
	return out.Instances, nil
}

func (r remote) Apply(ctx context.Context, d placer.Desired) error {
	_, err := r.ask(ctx, call{Desired: &d})
	return err
}

func (r remote) Observe(ctx context.Context) ([]placer.Instance, error) { return r.ask(ctx, call{}) }

// startUp runs a supervisor with an orchestrator and a loader until the end of the test.
func startUp(t *testing.T) string {
	dir, err := os.MkdirTemp("", "up") // a short path: it holds a socket
	if err != nil {
		t.Fatal(err)
	}
	spawn := func(role string, i int) (supervisor.Child, bool) {
		c := supervisor.Child{Role: role, Name: fmt.Sprintf("%s-%d", role, i), Args: []string{"worker", dir}}
		return c, role == "loader" || role == "shadow"
	}
	first, _ := spawn("loader", 0)
	ready, ended := make(chan struct{}), make(chan error, 1)
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, err := supervisor.Run(ctx, supervisor.Config{
			RunDir: dir, Spawn: spawn, OnReady: func() { close(ready) }, Stderr: t.Output(),
			Children: []supervisor.Child{
				{Role: "orchestrator", Name: "orchestrator", Args: []string{"orchestrator", dir}}, first,
			},
			Final: func(c supervisor.Child, e supervisor.Exit) supervisor.Verdict {
				if e.Signal == 0 && e.Code == 0 {
					return supervisor.Again
				}
				return supervisor.Restart
			},
		})
		ended <- err
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		os.RemoveAll(dir)
	})
	select {
	case <-ready:
	case <-time.After(time.Minute):
		t.Fatal("the processes did not become ready within a minute")
	}
	return dir
}

// pidOf returns the process of a child of a run directory.
func pidOf(runDir, name string) (int, error) {
	roles, err := supervisor.ReadRoles(runDir)
	if err != nil {
		return 0, err
	}
	for _, r := range roles {
		if r.Name == name && r.Pid != 0 {
			return r.Pid, nil
		}
	}
	return 0, fmt.Errorf("%s has no process", name)
}

func TestContract(t *testing.T) {
	placertest.Run(t, func(t *testing.T) placertest.Engine {
		dir := startUp(t)
		return placertest.Engine{
			Placer: remote{dir}, Name: supervisor.Engine, Role: "loader", Beside: "shadow", Hosts: 1,
			Identity: func(name string) (string, error) {
				pid, err := pidOf(dir, name)
				return placertest.Identity(pid), err
			},
			Kill: func(name string) error {
				pid, err := pidOf(dir, name)
				if err != nil {
					return err
				}
				return syscall.Kill(pid, syscall.SIGKILL)
			},
			Asked: func(identity string) bool {
				_, err := os.Stat(askedFile(dir, identity))
				return err == nil
			},
			Patience: 2 * time.Minute,
		}
	})
}
