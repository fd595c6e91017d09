package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"runtime/pprof"

	"github.com/spf13/cobra"

	"millrace"
	"millrace/internal/app/config"
	"millrace/internal/app/supervisor"
	"millrace/internal/event"
	"millrace/internal/failpoint"
	"millrace/internal/seam"
	"millrace/orchestrator/roster"
)

// The environment of a role, set by up.
const (
	envEvents = "MILLRACE_EVENTS" // directory of event records; empty: none are written
	envLog    = "MILLRACE_LOG"    // debug, info, warn or error
	// envProgram is the command that executes this binary, for children: an emulator's absolute path and the binary's, where the kernel
	// cannot run the binary by itself.
	envProgram = "MILLRACE_PROGRAM"
	envCPU     = "MILLRACE_CPU" // directory of CPU profiles, one a process, written when it leaves; empty: none
)

// role is what every child process of up has.
type role struct {
	name   string
	runDir string
	ranks  int // of this host
	world  int // of the run
	cfg    *config.Config
	life   *supervisor.Life
	fail   *failpoint.Set
	events *event.Log
	log    *slog.Logger
}

// roleFlags adds what up passes to its children.
func roleFlags(c *cobra.Command, r *role) {
	c.Hidden = true
	c.Args = cobra.NoArgs
	c.Flags().StringVar(&r.runDir, "run-dir", "", "run directory")
	c.Flags().StringVar(&r.name, "name", "", "name of this process in the run")
	c.Flags().IntVar(&r.ranks, "ranks", 1, "trainer ranks of this host")
	c.Flags().IntVar(&r.world, "world-size", 1, "trainer ranks of the run")
}

// start attaches to the supervisor and reads what it wrote. The caller calls stop.
func (r *role) start(ctx context.Context) (context.Context, func(), error) {
	life, err := supervisor.Attach(r.runDir)
	if err != nil {
		return nil, nil, err
	}
	r.life = life
	r.log = newLogger(r.name)
	if r.fail, err = failpoint.Parse(os.Getenv(failpoint.Env), r.name); err != nil {
		return nil, nil, err
	}
	if r.events, err = event.Open(os.Getenv(envEvents), r.name, seam.System{}); err != nil {
		return nil, nil, err
	}
	text, err := os.ReadFile(configFile(r.runDir))
	if err != nil {
		return nil, nil, fmt.Errorf("read the run's configuration: %w", err)
	}
	if r.cfg, err = config.UnmarshalResolved(text); err != nil {
		return nil, nil, fmt.Errorf("read the run's configuration: %w", err)
	}
	profiled, err := profile(os.Getenv(envCPU), r.name)
	if err != nil {
		return nil, nil, err
	}
	r.fail.OnTaken(taken(r.events))
	started := event.Weighed("start")
	r.events.Write(started)
	ctx, leave := life.Context(ctx)
	stop := func() {
		profiled()
		if r.events != nil {
			event.Settle(seam.System{}, started)
		}
		r.events.Write(event.Weighed("exit"))
		r.events.Close()
		leave()
	}
	return ctx, stop, nil
}

// taken notes in the event record what a failpoint is about to do.
func taken(events *event.Log) func(point, action string) {
	return func(point, action string) {
		events.Write(event.Record{Event: "failpoint", Key: point + "=" + action, Step: -1, Rank: -1, Micro: -1})
	}
}

// term reports under which term the role acts.
func (r *role) term(t millrace.Term) {
	if err := r.life.ReportTerm(t); err != nil {
		r.log.Warn("report term", "error", err)
	}
}

// fenced has a fresh process started in the place of one that nobody listens to any more.
func (r *role) fenced(f roster.Process) {
	if err := r.life.ReportFenced(f.Name, f.Pid); err != nil {
		r.log.Warn("report a fenced process", "name", f.Name, "pid", f.Pid, "error", err)
	}
}

// profile writes a CPU profile of this process to dir until the returned function is called.
func profile(dir, name string) (func(), error) {
	if dir == "" {
		return func() {}, nil
	}
	f, err := os.Create(filepath.Join(dir, fmt.Sprintf("%s-%d.pprof", name, os.Getpid())))
	if err != nil {
		return nil, fmt.Errorf("write CPU profile: %w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() {
		pprof.StopCPUProfile()
		f.Close()
	}, nil
}

// ready reports that the role serves. A supervisor that cannot hear it is gone, which the lifeline says as well.
func (r *role) ready() {
	r.events.Write(event.Weighed("ready"))
	if err := r.life.ReportReady(); err != nil {
		r.log.Warn("report ready", "error", err)
	}
}

// socket is the address of a role of this host.
func socket(runDir, name string) string {
	return filepath.Join(supervisor.RuntimeDir(runDir), name+".sock")
}

func configFile(runDir string) string {
	return filepath.Join(supervisor.RuntimeDir(runDir), "config.json")
}

func journalDir(runDir string) string { return filepath.Join(runDir, "journal") }

// collectRarely is the garbage collector's target while memory is far from its limit: most of what these roles allocate is payload
// that lives shortly, and collecting it at every doubling costs a tenth of their time.
const collectRarely = 400

// memoryLimit bounds the heap; near the limit the collector runs as often as it must.
func memoryLimit(bytes int64) {
	debug.SetGCPercent(collectRarely)
	debug.SetMemoryLimit(bytes)
}

func newLogger(name string) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(os.Getenv(envLog))); err != nil {
		level = slog.LevelWarn
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})).With("role", name)
}
