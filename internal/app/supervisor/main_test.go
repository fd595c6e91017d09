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

// The test binary plays the children and, where a test kills it, the supervisor: argv[1] names the part.
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
	"serve": serve, "stubborn": stubborn, "crash": crash, "fail": fail, "finish": finish, "blow": blow, "up": up, "deaf": deaf, "fencer": fencing, "full": full,
}

// attach is how every role begins.
func attach(runDir string) (*Life, context.Context, context.CancelFunc) {
	life, err := Attach(runDir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	ctx, cancel := life.Context(context.Background())
	return life, ctx, cancel
}

// serve is a well-behaved role with a socket file and a term.
func serve(runDir string) int {
	life, ctx, cancel := attach(runDir)
	defer cancel()
	_ = os.WriteFile(filepath.Join(runDir, "rank-0.sock"), nil, 0o600)
	_ = life.ReportTerm(millrace.Term(7))
	_ = life.ReportReady()
	<-ctx.Done()
	fmt.Fprintln(os.Stderr, "serve leaves:", context.Cause(ctx))
	if errors.Is(context.Cause(ctx), ErrStopped) {
		appendLine(runDir, os.Getenv("NAME"))
	}
	return 0
}

// deaf never returns from its work: an orphan of this kind has to be ended.
func deaf(runDir string) int {
	life, _, _ := attach(runDir)
	_ = life.ReportReady()
	select {}
}

// stubborn ignores the request to leave.
func stubborn(runDir string) int {
	life, ctx, _ := attach(runDir)
	_ = life.ReportReady()
	<-ctx.Done()
	select {}
}

// crash dies of a panic in its first life and serves in the next.
func crash(runDir string) int {
	mark := filepath.Join(runDir, "crashed")
	if _, err := os.Stat(mark); err == nil {
		return serve(runDir)
	}
	_ = os.WriteFile(mark, nil, 0o600)
	fmt.Fprintln(os.Stderr, "reading web/part-0.jsonl")
	panic("boom in the decoder")
}

// fail says why and exits with 1.
func fail(string) int {
	fmt.Fprintln(os.Stderr, "some progress")
	fmt.Fprint(os.Stderr, "source web: no such file") // no newline: it counts as a line all the same
	return 1
}

func finish(runDir string) int {
	life, _, cancel := attach(runDir)
	defer cancel()
	_ = life.ReportReady()
	return 0
}

// blow panics every time.
func blow(string) int { panic("always") }

// upGrace is longer than anything takes, however busy the machine is.
const upGrace = time.Minute

// up is a supervisor with two servants and a deaf one.
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

// fencing is an orchestrator that fences whom the file `fence` names.
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

// full finds no room until the file `room` is there.
func full(runDir string) int {
	if _, err := os.Stat(filepath.Join(runDir, "room")); err == nil {
		return serve(runDir)
	}
	life, _, cancel := attach(runDir)
	defer cancel()
	_ = life.ReportReady() // it works until it has to write
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

// eventually polls until ok, for at most a minute.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); <-time.After(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not happen", what)
		}
	}
}
