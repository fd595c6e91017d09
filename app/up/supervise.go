package up

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"millrace/app/config"
	"millrace/app/exit"
	"millrace/app/roles"
	"millrace/app/rundir"
	"millrace/app/setup"
	"millrace/app/supervisor"
	"millrace/internal/event"
)

// supervise runs the roles. asked reports whether the command was asked to stop before.
func (u *Up) supervise(ctx context.Context, asked func() bool, cfg *config.Config) error {
	events, fail, err := roles.Watch(u.Events, "up")
	if err != nil {
		return err
	}
	defer events.Close()
	events.Write(event.Weigh("start"))
	// The roles start while the paths are walked: a walk over a million files takes seconds.
	var walk sync.WaitGroup
	defer walk.Wait()
	walk.Go(func() {
		u.warnOfFiles(ctx, cfg)
	})
	ctx, end := context.WithCancelCause(ctx)
	registered, change := u.stay(ctx, end), make(chan supervisor.Child)
	_, err = supervisor.Run(ctx, supervisor.Config{
		Fail:   fail,
		RunDir: u.RunDir, Children: u.children(), Spawn: u.spawn, Change: change,
		Program: strings.Fields(os.Getenv(roles.EnvProgram)),
		Stderr:  u.Err,
		Prepare: func() error {
			if err := os.Remove(rundir.OutcomeFile(u.RunDir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			registered.Go(func() { u.reshapes(ctx, cfg, change) }) // no other `up` has the directory
			return u.writeConfigs(cfg)
		},
		Final: judge,
		OnReady: func() {
			events.Write(event.Weigh("ready"))
			roles.CollectQuietly()
			fmt.Fprintln(u.Out, u.readyLine())
		},
		Asked: asked, TrainersGrace: u.Grace, StopGrace: u.StopGrace(),
	})
	end(nil)
	registered.Wait()
	events.Write(event.Weigh("exit"))
	var failed *supervisor.FailedError
	if errors.As(err, &failed) {
		// Trainers read the reason there if no role could send it.
		text, _ := json.Marshal(map[string]string{"state": "failed", "reason": err.Error()})
		err = errors.Join(err, os.WriteFile(rundir.OutcomeFile(u.RunDir), text, 0o644)) // for trainers of other users
	}
	return exit.Failure(err)
}

// stay keeps the registration of this host until ctx ends. It ends the supervisor if this host may not continue, and if
// the run has ended on the host that planned it. A host with an orchestrator process leaves the latter to that process.
func (u *Up) stay(ctx context.Context, end context.CancelCauseFunc) *sync.WaitGroup {
	var registered sync.WaitGroup
	if u.here == nil {
		return &registered
	}
	registered.Go(func() {
		if err := u.here.Run(ctx); err != nil {
			end(&supervisor.Over{Err: err})
		}
	})
	if !u.runs(roles.OrchestratorRole) {
		registered.Go(func() {
			if outcome, err := u.here.AwaitOutcome(ctx, u.here.Host().Incarnation); err == nil {
				end(&supervisor.Over{Err: outcome.Err()})
			}
		})
	}
	return &registered
}

// readyLine says what this command serves.
func (u *Up) readyLine() string {
	sockets := filepath.Join(u.RunDir, "rank-<r>.sock")
	switch {
	case !u.runs(roles.SidecarRole):
		return fmt.Sprintf("ready: %s takes part in the run %s", u.Name, u.file.Name)
	case u.isSpread():
		return fmt.Sprintf("ready: %d ranks from rank %d on, of %d, on %s", u.Ranks, u.First, u.World, sockets)
	}
	return fmt.Sprintf("ready: %d ranks on %s", u.Ranks, sockets)
}

// warnOfFiles prints a warning for each source with files that are not read, and for sources that read the same files.
func (u *Up) warnOfFiles(ctx context.Context, cfg *config.Config) {
	warn := func(warning string) {
		if warning != "" && ctx.Err() == nil {
			fmt.Fprintf(u.Err, "warning: %s\n", warning)
		}
	}
	var uses []setup.Use
	for name, stream := range cfg.All() {
		for warning := range setup.SkippedFiles(stream) {
			warn(warning)
		}
		uses = append(uses, setup.Uses(name, stream)...)
	}
	for _, warning := range setup.Shared(uses) {
		warn(warning)
	}
}

// judge decides the reaction to the end of a child. The orchestrator's end is the run's end, unless it was asked to
// leave, or waits for disk space or for the lease. Every other child is restarted.
func judge(child supervisor.Child, ended supervisor.Exit) supervisor.Verdict {
	planner := child.Role == roles.OrchestratorRole
	switch {
	case ended.Signal != 0:
		return supervisor.Restart
	case ended.Code == exit.Asked, ended.Code == exit.Done && !planner:
		return supervisor.Again
	case ended.Code == exit.NoRoom, ended.Code == exit.Fenced:
		return supervisor.Await
	case ended.Code == exit.Done:
		return supervisor.Finish
	case ended.Code == exit.Failed && planner:
		return supervisor.Fail
	}
	return supervisor.Restart
}

// children returns the roles in the order of their start. They are stopped in the reverse order.
func (u *Up) children() []supervisor.Child {
	if u.Role == roles.LoaderRole || u.Role == roles.ShadowRole {
		child := u.child(u.Role, u.Name)
		child.HandsOver = true
		return []supervisor.Child{child}
	}
	var out []supervisor.Child
	if u.runs(roles.OrchestratorRole) {
		out = append(out, u.planner())
	}
	place := u.place()
	if u.Role == "" {
		for _, name := range place.Loaders(u.fleet) {
			out = append(out, u.child(roles.LoaderRole, name))
		}
		for _, name := range place.Shadows(u.fleet) {
			out = append(out, u.child(roles.ShadowRole, name))
		}
	}
	if u.runs(roles.SidecarRole) {
		out = append(out, u.child(roles.SidecarRole, place.Sidecar(), u.Args()...))
	}
	return out
}

// planner returns the orchestrator.
func (u *Up) planner() supervisor.Child {
	incarnation, lease := rand.Text(), ""
	if u.file != nil {
		lease = u.file.Path
	}
	if u.here != nil {
		incarnation = u.here.Host().Incarnation
	}
	engine := u.Placer
	if u.here == nil {
		engine = roles.Supervisor
	}
	role := roles.OrchestratorRole
	return u.child(role, role, "--metrics", u.Metrics, "--cluster", lease, "--up", incarnation,
		"--placer", engine)
}

// child returns the process of a role.
func (u *Up) child(role, name string, more ...string) supervisor.Child {
	args := append([]string{"role", role, "--run-dir", u.RunDir, "--name", name, "--ranks", strconv.Itoa(u.Ranks),
		"--world-size", strconv.Itoa(u.World)}, more...)
	child := supervisor.Child{Role: role, Name: name, Args: args}
	if u.Events != "" {
		dir, err := filepath.Abs(u.Events)
		if err == nil {
			child.Env = append(child.Env, roles.EnvEvents+"="+dir)
		}
	}
	return child
}

// spawn returns a loader that the orchestrator may add during the run.
func (u *Up) spawn(role string, i int) (supervisor.Child, bool) {
	if role != roles.LoaderRole {
		return supervisor.Child{}, false
	}
	return u.child(role, u.place().Loader(i)), true
}
