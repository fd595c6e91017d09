package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/testscript"

	"millrace"
	"millrace/app/rundir"
	"millrace/app/supervisor"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"millrace": main})
}

// TestScripts runs the binary as a user does. The scripts hold the output and the exit status of each command.
func TestScripts(t *testing.T) {
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	setup := func(e *testscript.Env) error { e.Setenv("EXAMPLES", examples); return nil }
	testscript.Run(
		t,
		testscript.Params{
			Dir:   "testdata/script",
			Setup: setup,
			Cmds: map[string]func(*testscript.TestScript, bool, []string){
				"exits": exits, "docs": docs, "pack": pack, "cut": cut, "flip": flip, "table": parquetFile,
				"tokens": megatronFiles, "ready": ready,
			},
		},
	)
}

// exits STATUS PROGRAM ARGS… runs a program that must end with this status, within a minute, and without a stack trace.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	begin := time.Now()
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("status %d, want %d\n%s", got, want, ts.ReadFile("stderr"))
	}
	if strings.Contains(ts.ReadFile("stderr"), "goroutine ") {
		ts.Fatalf("a stack trace")
	}
	if !utf8.ValidString(ts.ReadFile("stderr")) {
		ts.Fatalf("bytes that are no text: %q", ts.ReadFile("stderr"))
	}
	if took := time.Since(begin); took > time.Minute {
		ts.Fatalf("it took %s", took)
	}
}

// ready DIR [TERM] waits until every role of a run serves and its loaders have stripes. With TERM it waits for an
// orchestrator of that term.
func ready(ts *testscript.TestScript, neg bool, args []string) {
	var roles []supervisor.Role
	term := millrace.Term(1)
	if len(args) > 1 { // the processes of a killed up are listed until they have gone
		n, err := strconv.Atoi(args[1])
		ts.Check(err)
		term = millrace.Term(n)
	}
	for range 1200 {
		roles, _, _ = rundir.Roles(ts.MkAbs(args[0]))
		if len(roles) > 0 && !slices.ContainsFunc(roles, func(r supervisor.Role) bool {
			return r.State != supervisor.Running || r.Role == "orchestrator" && r.Term < term ||
				r.Role == "loader" && r.Term == 0
		}) {
			return
		}
		<-time.After(50 * time.Millisecond)
	}
	ts.Fatalf("%s does not serve: %+v", args[0], roles)
}

// cut FILE N leaves N bytes of a file; a negative N removes that many bytes.
func cut(ts *testscript.TestScript, neg bool, args []string) {
	n, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	if n < 0 {
		st, err := os.Stat(ts.MkAbs(args[0]))
		ts.Check(err)
		n += st.Size()
	}
	ts.Check(os.Truncate(ts.MkAbs(args[0]), n))
}

// flip FILE OFFSET… damages bytes so that ASCII is no longer UTF-8; a negative offset counts from the end.
func flip(ts *testscript.TestScript, neg bool, args []string) {
	b, err := os.ReadFile(ts.MkAbs(args[0]))
	ts.Check(err)
	for _, a := range args[1:] {
		at, err := strconv.Atoi(a)
		ts.Check(err)
		if at < 0 {
			at += len(b)
		}
		b[at] ^= 0xda
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), b, 0o600))
}

func write(ts *testscript.TestScript, name string, b []byte) {
	path := ts.MkAbs(name)
	ts.Check(os.MkdirAll(filepath.Dir(path), 0o755))
	ts.Check(os.WriteFile(path, b, 0o600))
}
