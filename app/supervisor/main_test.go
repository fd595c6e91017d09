package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"millrace"
)

// The test binary plays the children, and the supervisor for tests that kill it. argv[1] names the part.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 {
		if part, ok := parts[os.Args[1]]; ok {
			os.Exit(part(os.Args[2]))
		}
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // the children of a race build would each sleep a second
	goleak.VerifyTestMain(m)
}

var parts = map[string]func(runDir string) int{
	"serve": serve, "stubborn": stubborn, "crash": crash, "fail": fail, "finish": finish, "blow": blow,
	"up": up, "deaf": deaf, "fencer": fencing, "full": full,
}

// attach begins every part.
func attach(runDir string) (*Life, context.Context, context.CancelFunc) {
	life, err := Attach(runDir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	ctx, cancel := life.Context(context.Background())
	return life, ctx, cancel
}

// serve plays a correct role with a socket file and a term.
func serve(runDir string) int {
	life, ctx, cancel := attach(runDir)
	defer cancel()
	_ = os.WriteFile(filepath.Join(runDir, "rank-0.sock"), nil, 0o600)
	_ = life.ReportTerm(millrace.Term(7))
	_ = life.ReportReady()
	<-ctx.Done()
	fmt.Fprintln(os.Stderr, "serve leaves:", context.Cause(ctx))
	if errors.Is(context.Cause(ctx), ErrEnding) {
		appendLine(runDir, os.Getenv("NAME"))
	}
	return 0
}

// deaf plays a role that never returns from its work, so an orphan of this kind must be killed.
func deaf(runDir string) int {
	life, _, _ := attach(runDir)
	_ = life.ReportReady()
	select {}
}

// stubborn plays a role that ignores the request to leave.
func stubborn(runDir string) int {
	life, ctx, _ := attach(runDir)
	_ = life.ReportReady()
	<-ctx.Done()
	select {}
}

// crash plays a role that panics in its first life and serves in the next.
func crash(runDir string) int {
	mark := filepath.Join(runDir, "crashed")
	if _, err := os.Stat(mark); err == nil {
		return serve(runDir)
	}
	_ = os.WriteFile(mark, nil, 0o600)
	fmt.Fprintln(os.Stderr, "reading web/part-0.jsonl")
	panic("boom in the decoder")
}

// fail plays a role that prints a reason and exits with 1.
func fail(string) int {
	fmt.Fprintln(os.Stderr, "some progress")
	fmt.Fprint(os.Stderr, "source web: no such file") // counts as a line without a newline, too
	return 1
}

func finish(runDir string) int {
	life, _, cancel := attach(runDir)
	defer cancel()
	_ = life.ReportReady()
	return 0
}

// blow plays a role that panics in every life.
func blow(string) int { panic("always") }

// upGrace is longer than any test, even on a busy machine.
const upGrace = time.Minute

// up plays a supervisor with two children that serve and a deaf one.
func up(runDir string) int {
	_, err := Run(context.Background(), Config{RunDir: runDir, Children: []Child{
		{Role: "orchestrator", Name: "orchestrator", Args: []string{"serve", runDir}},
		{Role: "loader", Name: "loader-0", Args: []string{os.Getenv("LOADER_PART"), runDir}},
		{Role: "sidecar", Name: "sidecar", Args: []string{"serve", runDir}},
	}, OnReady: func() { fmt.Println("ready") }, StopGrace: upGrace})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// fencing plays an orchestrator that fences the process named in the file `fence`.
func fencing(runDir string) int {
	life, ctx, cancel := attach(runDir)
	defer cancel()
	_ = life.ReportReady()
	for ctx.Err() == nil {
		if b, err := os.ReadFile(filepath.Join(runDir, "fence")); err == nil {
			var name string
			var pid int64
			_, _ = fmt.Sscan(string(b), &name, &pid)
			_ = life.ReportFenced(name, pid)
			_ = os.Remove(filepath.Join(runDir, "fence"))
		}
		<-time.After(2 * time.Millisecond)
	}
	return 0
}

// full plays a role without room on its disk until the file `room` exists.
func full(runDir string) int {
	if _, err := os.Stat(filepath.Join(runDir, "room")); err == nil {
		return serve(runDir)
	}
	life, _, cancel := attach(runDir)
	defer cancel()
	_ = life.ReportReady() // it fails at the first write
	fmt.Fprintf(os.Stderr, "time=%d no room for the reserve\n", time.Now().UnixNano())
	fmt.Fprintf(os.Stderr, "write to journal %d: disk full\n", time.Now().UnixNano())
	return 4
}

func appendLine(runDir, line string) {
	f, err := os.OpenFile(filepath.Join(runDir, "left"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		fmt.Fprintln(f, line)
		f.Close()
	}
}

// eventually polls until ok returns true, for at most a minute.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); <-time.After(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not happen", what)
		}
	}
}
