// Command testreport runs test steps. It prints failures as they come, then slow packages and tests, a table of skipped
// tests, the names of failed ones, and one line with the totals.
//
//	testreport KIND:NAME=VALUE ...
//
//	check:NAME=COMMAND    one test: it passes with exit status 0; its output is shown if it fails
//	go:NAME=COMMAND       prints the output of `go test -json`
//	pytest:NAME=COMMAND   writes a JUnit file at $JUNIT, as pytest --junitxml=$JUNIT does
//	skip:NAME=REASON      one test that cannot run here
//
// Steps run one after the other. With & behind its kind, as in check&:NAME=COMMAND, a step runs beside the next one.
// Its results are printed after those of the next one. bash runs the commands, without standard input. A failure does
// not stop the later commands. A skipped test counts as failed unless its reason is a program or an ability that this
// machine lacks (internal/needs). Exit status: 0 all passed, 1 a test failed, 2 wrong usage.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

func main() {
	steps, err := parseSteps(os.Args[1:])
	if err == nil && len(steps) == 0 {
		err = errors.New("no steps")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(2)
	}
	r := &report{out: os.Stdout}
	for len(steps) > 0 {
		n := 1 + slices.IndexFunc(steps, func(s step) bool { return !s.beside })
		runBeside(steps[:n], r)
		steps = steps[n:]
	}
	if !r.summary() {
		os.Exit(1)
	}
}

// step is one argument.
type step struct {
	kind, name, value string
	beside            bool // runs beside the next step
}

func parseSteps(args []string) ([]step, error) {
	var steps []step
	for _, a := range args {
		head, value, ok := strings.Cut(a, "=")
		kind, name, named := strings.Cut(head, ":")
		kind, beside := strings.CutSuffix(kind, "&")
		if !ok || !named || !strings.Contains(" check go pytest skip ", " "+kind+" ") {
			return nil, fmt.Errorf("step %q: want check|go|pytest|skip:NAME=VALUE", a)
		}
		steps = append(steps, step{kind, name, value, beside})
	}
	if n := len(steps); n > 0 && steps[n-1].beside {
		return nil, fmt.Errorf("step %q is the last one: there is no step beside which it can run", steps[n-1].name)
	}
	return steps, nil
}

// runBeside runs steps at the same time. It prints the results of the last one as they come, and then those of the
// others in their order.
func runBeside(steps []step, r *report) {
	last := len(steps) - 1
	outs, reports := make([]strings.Builder, last), make([]*report, last)
	var running sync.WaitGroup
	for i, s := range steps[:last] {
		reports[i] = &report{out: &outs[i]}
		running.Go(func() { s.run(reports[i]) })
	}
	steps[last].run(r)
	running.Wait()
	for i := range reports {
		r.add(reports[i], outs[i].String())
	}
}

func (s step) run(r *report) {
	switch s.kind {
	case "check":
		out, err := s.command().CombinedOutput()
		if err != nil {
			r.fail(s.name, string(out)+err.Error()+"\n")
			return
		}
		r.pass(s.name)
	case "go":
		s.runGo(r)
	case "pytest":
		s.runPytest(r)
	case "skip":
		r.skip(s.name, s.value)
	}
}

func (s step) command() *exec.Cmd { return exec.Command("bash", "-c", s.value) }

// runGo reads the events as they come. An exit status without a failed test is a failure itself.
func (s step) runGo(r *report) {
	cmd := s.command()
	cmd.Stderr = r.out
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		r.fail(s.name, err.Error()+"\n")
		return
	}
	failed := r.failed
	rest, readErr := newGoReader(s.name, r).read(stdout)
	_, _ = io.Copy(io.Discard, stdout)
	if err := errors.Join(readErr, cmd.Wait()); err != nil && r.failed == failed {
		r.fail(s.name, rest+err.Error()+"\n")
	}
}

func (s step) runPytest(r *report) {
	dir, err := os.MkdirTemp("", "testreport")
	if err != nil {
		r.fail(s.name, err.Error()+"\n")
		return
	}
	defer os.RemoveAll(dir)
	junit := filepath.Join(dir, "junit.xml")
	cmd := s.command()
	cmd.Env = append(os.Environ(), "JUNIT="+junit)
	out, runErr := cmd.CombinedOutput()
	failed := r.failed
	if err := readJUnit(junit, s.name, r); err != nil {
		r.fail(s.name, string(out)+err.Error()+"\n")
	} else if runErr != nil && r.failed == failed {
		r.fail(s.name, string(out)+runErr.Error()+"\n")
	}
}
