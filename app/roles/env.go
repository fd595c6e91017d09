package roles

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/pprof"

	"millrace/internal/event"
	"millrace/internal/failpoint"
	"millrace/internal/seam"
)

// The environment of a role. Up passes its own environment on to its children.
const (
	// EnvEvents is the directory of event records. If it is empty, a role writes none.
	EnvEvents = "MILLRACE_EVENTS"
	// EnvProgram is the command that executes this binary, for a kernel that cannot run the binary by itself: the
	// absolute paths of an emulator and of the binary.
	EnvProgram = "MILLRACE_PROGRAM"

	envLog = "MILLRACE_LOG" // debug, info, warn or error
	envCPU = "MILLRACE_CPU" // directory of CPU profiles, one a process, written when the process leaves; empty: none
)

// Watch opens the event record and the failpoints of a process, as the environment asks for them. The record notes
// every failpoint before the failpoint acts.
func Watch(dir, name string) (*event.Log, *failpoint.Set, error) {
	fail, err := failpoint.Parse(os.Getenv(failpoint.Env), name)
	if err != nil {
		return nil, nil, err
	}
	events, err := event.Open(dir, name, seam.System{})
	if err != nil {
		return nil, nil, err
	}
	fail.OnTaken(func(point, action string) {
		events.Write(event.Record{Event: "failpoint", Key: point + "=" + action, Step: -1, Rank: -1, Micro: -1})
	})
	return events, fail, nil
}

// profile writes a CPU profile of this process to dir until the caller calls the returned function.
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

// NewLogger returns a logger to standard error that names its role. MILLRACE_LOG sets the level, by default warn.
func NewLogger(name string) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(os.Getenv(envLog))); err != nil {
		level = slog.LevelWarn
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})).With("role", name)
}
