package supervisor

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"millrace"
	"millrace/internal/limits"
)

// Descriptors of a child and the variables that name them.
const (
	lifelineFD, reportFD, lockFD    = 3, 4, 5
	lifelineEnv, reportEnv, lockEnv = "MILLRACE_LIFELINE", "MILLRACE_READY", "MILLRACE_RUN_LOCK"
)

// drainGrace is the time for which output may still arrive after a process has died, from a process that it started.
const drainGrace = time.Second

// self is the file of this program, even if it was replaced on disk.
const self = "/proc/self/exe"

// argv0 is the name under which every child is listed.
const argv0 = "millrace"

// process is one life of a child.
type process struct {
	cmd     *exec.Cmd
	output  *lineWriter
	reports *os.File // our end of the child's report pipe
}

// surroundings is the part of a process that all children share.
type surroundings struct {
	program  []string // the file to execute and its first arguments
	runDir   string
	stderr   *syncWriter
	lock     *os.File // the locked run directory
	lifeline *os.File // read end
}

// startProcess executes a child. After success, exactly one goroutine must call follow.
func (s *surroundings) startProcess(c Child, mute heard) (*process, error) {
	reports, theirs, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make report pipe: %w", err)
	}
	defer theirs.Close()
	p := &process{reports: reports, output: &lineWriter{out: s.stderr, dir: s.runDir, name: c.Name, mute: mute}}
	p.cmd = &exec.Cmd{
		Path:        s.program[0],
		Args:        slices.Concat([]string{argv0}, s.program[1:], c.Args),
		Env:         childEnv(c.Env),
		Stdout:      p.output, // one writer for both: os/exec then uses one pipe and one goroutine, so lines stay whole
		Stderr:      p.output,
		ExtraFiles:  []*os.File{s.lifeline, theirs, s.lock},
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
		WaitDelay:   drainGrace,
	}
	if err := p.cmd.Start(); err != nil {
		reports.Close()
		return nil, limits.ExplainStart(err)
	}
	return p, nil
}

func childEnv(extra []string) []string {
	env := append(os.Environ(), extra...)
	for name, fd := range map[string]int{lifelineEnv: lifelineFD, reportEnv: reportFD, lockEnv: lockFD} {
		env = append(env, name+"="+strconv.Itoa(fd))
	}
	return env
}

// follow sends the child's reports as events, and its exit as the last one.
func (p *process) follow(child int, events chan<- event) {
	defer p.reports.Close()
	kills := limits.Host().Kills()
	lines := bufio.NewScanner(p.reports)
	for lines.Scan() {
		if ev := parseReport(child, p.cmd.Process.Pid, lines.Text()); ev != nil {
			events <- ev
		}
	}
	err := p.cmd.Wait()
	p.output.finish()
	exit := exitOf(p.cmd, err, p.output)
	exit.Limit = limits.Host().OfDeath(exit.Signal, exit.LastLine, limits.Host().Kills() > kills)
	events <- evExited{child, p.cmd.Process.Pid, exit}
}

// parseReport parses "ready", "term N", "lacks THING", "trainers N", "fenced NAME PID" and "place ID GOAL". It returns
// nil for other lines.
func parseReport(child, pid int, line string) event {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "ready":
		return evReady{child, pid}
	case "term":
		if n, err := strconv.ParseUint(rest, 10, 64); err == nil {
			return evTerm{child, pid, millrace.Term(n)}
		}
	case "lacks":
		return evLacks{child, pid, rest}
	case "trainers":
		if n, err := strconv.Atoi(rest); err == nil {
			return evTrainers{child, pid, n}
		}
	case "fenced":
		name, number, _ := strings.Cut(rest, " ")
		if n, err := strconv.Atoi(number); err == nil {
			return evFenced{child, name, n}
		}
	case "place":
		id, text, _ := strings.Cut(rest, " ")
		ev := evPlace{child: child, pid: pid, id: id}
		if json.Unmarshal([]byte(text), &ev.goal) == nil {
			return ev
		}
	}
	return nil
}

// exitOf returns the exit of a process after Wait.
func exitOf(cmd *exec.Cmd, err error, out *lineWriter) Exit {
	exit := Exit{Code: -1, LastLine: out.last, Crash: out.path, Starved: out.starved}
	if cmd.ProcessState == nil { // Wait itself failed
		if exit.LastLine == "" && err != nil && !errors.Is(err, exec.ErrWaitDelay) {
			exit.LastLine = err.Error()
		}
		return exit
	}
	exit.Code = cmd.ProcessState.ExitCode()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		exit.Signal = status.Signal()
	}
	return exit
}
