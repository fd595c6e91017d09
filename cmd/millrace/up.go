package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"millrace/internal/app/cluster"
	"millrace/internal/app/config"
	"millrace/internal/app/dryrun"
	"millrace/internal/app/exit"
	"millrace/internal/app/roles"
	"millrace/internal/app/rundir"
	"millrace/internal/app/setup"
	"millrace/internal/app/supervisor"
	"millrace/internal/event"
	"millrace/orchestrator/lease/hosts"
)

// up is the flags of `millrace up`.
type up struct {
	mixture, runDir, metrics, events, cluster string
	ranks, world, first                       int

	file *cluster.File     // nil: no etcd
	here *hosts.Membership // nil: the run has one host
}

func upCommand() *cobra.Command {
	u := &up{}
	c := &cobra.Command{
		Use:   "up MIXTURE --ranks N --run-dir DIR",
		Short: "Serve a mixture to the trainer ranks of this host",
		Long: `Serve a mixture to the N trainer ranks of this host, on DIR/rank-0.sock … DIR/rank-<N-1>.sock.

up prints a line that begins with "ready" when all sockets accept. A finite run ends by itself, with status 0, after
every rank has taken all batches. Ctrl-C or SIGTERM stops cleanly.

DIR keeps the run's journal. The next up on the same directory continues the run, also after a kill. In a directory with
history, each trainer declares its start: a saved state, "latest" or "fresh".

If MIXTURE is -, up reads the mixture file from standard input. Its relative paths are relative to the working
directory.

Every role is a separate process, and up restarts a process that dies. A shadow takes over for a lost loader at once
(reliability.shadows in the mixture file). When a disk is full, the run waits. up prints "warning: …" when a capability
goes missing and "over: …" when it is back; millrace status lists the missing ones.

With --cluster, this up plans only while it has the run's lease in etcd. A run with ranks on several hosts needs an up
on each, with the same mixture file, --ranks and --world-size, and with its own --first-rank (docs/cluster.md).`,
		Example: "  millrace up mixture.yaml --ranks 8 --run-dir runs/a\n" +
			"  millrace up mixture.yaml --ranks 8 --world-size 64 --first-rank 16 --cluster cluster.yaml " +
			"--run-dir runs/a",
		Args: exactArgs(1, "one mixture file"),
		RunE: func(c *cobra.Command, args []string) error {
			u.mixture = args[0]
			return u.run(c)
		},
	}
	f := c.Flags()
	f.IntVar(&u.ranks, "ranks", 1, "trainer ranks on this host")
	f.IntVar(&u.world, "world-size", 0, "trainer ranks of all hosts (default: --ranks)")
	f.IntVar(&u.first, "first-rank", 0, "first of this host's ranks, if there are more hosts")
	f.StringVar(&u.runDir, "run-dir", "", "directory of the run: sockets and journal (required)")
	f.StringVar(&u.cluster, "cluster", "", "YAML file of the etcd cluster that the ups of this run share")
	f.StringVar(&u.metrics, "metrics", "", "serve Prometheus metrics at http://ADDRESS/metrics, such as 127.0.0.1:9464")
	f.StringVar(&u.events, "events", "", "directory for event records of the roles, one JSON object a line")
	return c
}

func (u *up) validate() error {
	if u.world == 0 {
		u.world = u.ranks
	}
	switch {
	case u.runDir == "":
		return exit.Usagef(
			"millrace up: --run-dir is missing: write a directory for the run's sockets and journal, such as " +
				"--run-dir runs/a",
		)
	case u.ranks < 1:
		return exit.Usagef("millrace up: --ranks %d: want at least 1", u.ranks)
	case u.world != u.ranks && u.cluster == "":
		return exit.Usagef(
			"millrace up: --world-size %d beside --ranks %d: ranks on several hosts need --cluster with a cluster file",
			u.world, u.ranks,
		)
	}
	return u.host().Validate()
}

// host returns this host before it has agreed with others.
func (u *up) host() hosts.Host { return hosts.Host{First: u.first, Ranks: u.ranks, World: u.world} }

// fleet describes the processes of all hosts.
func (u *up) fleet() setup.Fleet { return setup.Fleet{Ranks: u.ranks, World: u.world} }

// isSpread reports whether the run has several hosts.
func (u *up) isSpread() bool { return u.world > u.ranks }

func (u *up) run(c *cobra.Command) error {
	if err := u.validate(); err != nil {
		return err
	}
	// A stop during the reading of the mixture is also clean.
	ctx, quiet := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer quiet()
	ctx, leave, err := supervisor.WithParent(ctx)
	if err != nil {
		return err
	}
	defer leave()
	cfg, err := config.Load(u.mixture)
	if err != nil {
		return err
	}
	if err := setup.Divide(cfg, u.ranks); err != nil {
		return err
	}
	if err := setup.CheckIndexDir(cfg); err != nil {
		return err
	}
	if _, err := setup.TokenCache(cfg, nil); err != nil {
		return err
	}
	if u.runDir, err = filepath.Abs(u.runDir); err != nil {
		return err
	}
	if u.cluster != "" {
		if u.file, err = cluster.Load(u.cluster); err != nil {
			return err
		}
	}
	digest, err := cfg.Digest()
	if err != nil {
		return err
	}
	cfg.Loaders.Count = uint32(setup.Loaders(cfg)) // one number for all roles
	if u.isSpread() {
		if err := u.join(ctx, c, cfg, digest); err != nil {
			if ctx.Err() != nil {
				return nil // it was asked to stop while it waited for etcd or for another host
			}
			return err
		}
		defer u.here.Leave()
	}
	for _, stream := range cfg.All() {
		if err := u.prepare(ctx, c, stream); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return u.supervise(ctx, c, cfg)
}

// join registers this host. The hosts have equal numbers of loaders.
func (u *up) join(ctx context.Context, c *cobra.Command, cfg *config.Config, digest string) (err error) {
	me := u.host()
	me.Loaders, me.Mixture, me.Program = int(cfg.Loaders.Count), digest, programVersion()
	if u.here, err = cluster.Join(ctx, u.file, me, c.ErrOrStderr()); err != nil {
		return err
	}
	cfg.Loaders.Count = uint32(u.here.Host().Loaders)
	return nil
}

// prepare refuses a stream that cannot be served.
func (u *up) prepare(ctx context.Context, c *cobra.Command, cfg *config.Config) error {
	if err := cfg.Payload(); err != nil {
		return err
	}
	if err := errors.Join(setup.CheckLoaderMemory(cfg), setup.CheckSidecarMemory(cfg, u.ranks)); err != nil {
		return err
	}
	if _, err := setup.Tokenizer(cfg); err != nil {
		return err
	}
	if err := dryrun.Measure(ctx, cfg, dryrun.Options{Logger: roles.NewLogger("up")}); err != nil {
		return firstProblem(c, err)
	}
	_, err := roles.OrchestratorConfig(cfg, u.fleet(), programVersion())
	return err
}

// writeConfigs makes the directories of further streams, and writes the configuration of every stream for the roles.
func (u *up) writeConfigs(cfg *config.Config) error {
	// Clients take the list of streams as complete when the run's own configuration is there.
	for i := range cfg.Streams {
		if err := supervisor.MakeStream(u.runDir, cfg.Streams[i].Name); err != nil {
			return err
		}
	}
	if u.here != nil {
		if err := cluster.WriteSite(u.runDir, cluster.Site{Host: u.here.Host(), File: u.file.Path}); err != nil {
			return err
		}
	}
	for name, stream := range cfg.All() {
		resolved, err := stream.MarshalResolved()
		if err != nil {
			return err
		}
		if err := os.WriteFile(rundir.ConfigFile(supervisor.StreamDir(u.runDir, name)), resolved, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (u *up) supervise(ctx context.Context, c *cobra.Command, cfg *config.Config) error {
	events, fail, err := roles.Watch(u.events, "up")
	if err != nil {
		return err
	}
	defer events.Close()
	events.Write(event.Weigh("start"))
	// The roles start while the paths are walked: a walk over a million files takes seconds.
	var walk sync.WaitGroup
	defer walk.Wait()
	walk.Go(func() {
		for _, stream := range cfg.All() {
			warnOfSkipped(ctx, c, stream)
		}
	})
	ctx, expel := context.WithCancelCause(ctx)
	var registered sync.WaitGroup
	var expelled error // this host may not go on
	if u.here != nil {
		registered.Go(func() {
			if expelled = u.here.Run(ctx); expelled != nil {
				expel(expelled)
			}
		})
	}
	_, err = supervisor.Run(ctx, supervisor.Config{
		Fail:   fail,
		RunDir: u.runDir, Children: u.children(cfg), Spawn: u.spawn,
		Program: strings.Fields(os.Getenv(roles.EnvProgram)),
		Stderr:  c.ErrOrStderr(),
		Prepare: func() error {
			if err := os.Remove(rundir.OutcomeFile(u.runDir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return u.writeConfigs(cfg)
		},
		Final: judge,
		OnReady: func() {
			events.Write(event.Weigh("ready"))
			of := ""
			if u.isSpread() {
				of = fmt.Sprintf(" from rank %d on, of %d,", u.first, u.world)
			}
			fmt.Fprintf(c.OutOrStdout(), "ready: %d ranks%s on %s\n", u.ranks, of,
				filepath.Join(u.runDir, "rank-<r>.sock"))
		},
	})
	expel(nil)
	registered.Wait()
	events.Write(event.Weigh("exit"))
	var failed *supervisor.FailedError
	if errors.As(err, &failed) {
		// Trainers read the reason there if no role could send it.
		text, _ := json.Marshal(map[string]string{"state": "failed", "reason": err.Error()})
		err = errors.Join(err, os.WriteFile(rundir.OutcomeFile(u.runDir), text, 0o600))
	}
	if err != nil {
		return exit.Failure(err)
	}
	if expelled != nil {
		return exit.Failure(expelled)
	}
	return nil
}

// warnOfSkipped prints a warning for each source with files that are not read.
func warnOfSkipped(ctx context.Context, c *cobra.Command, cfg *config.Config) {
	for warning := range setup.SkippedFiles(cfg) {
		if ctx.Err() != nil {
			return
		}
		if warning != "" {
			fmt.Fprintf(c.ErrOrStderr(), "warning: %s\n", warning)
		}
	}
}

// judge decides the reaction to the end of a child. The orchestrator's end is the run's end, unless it was asked to
// leave, or waits for disk space or for the lease. Every other child is restarted.
func judge(child supervisor.Child, ended supervisor.Exit) supervisor.Verdict {
	planner := child.Role == "orchestrator"
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
func (u *up) children(cfg *config.Config) []supervisor.Child {
	incarnation, lease := rand.Text(), ""
	if u.file != nil {
		lease = u.file.Path
	}
	if u.here != nil {
		incarnation = u.here.Host().Incarnation
	}
	out := []supervisor.Child{
		u.child("orchestrator", "orchestrator", "--metrics", u.metrics, "--cluster", lease, "--up", incarnation),
	}
	fleet := u.fleet()
	for _, name := range fleet.Loaders(cfg, u.first) {
		out = append(out, u.child("loader", name))
	}
	for _, name := range fleet.Shadows(cfg, u.first) {
		out = append(out, u.child("shadow", name))
	}
	return append(out, u.child("sidecar", fleet.Sidecar(u.first), "--first-rank", strconv.Itoa(u.first)))
}

// child returns the process of a role.
func (u *up) child(role, name string, more ...string) supervisor.Child {
	args := append([]string{role, "--run-dir", u.runDir, "--name", name, "--ranks", strconv.Itoa(u.ranks),
		"--world-size", strconv.Itoa(u.world)}, more...)
	child := supervisor.Child{Role: role, Name: name, Args: args}
	if u.events != "" {
		dir, err := filepath.Abs(u.events)
		if err == nil {
			child.Env = append(child.Env, roles.EnvEvents+"="+dir)
		}
	}
	return child
}

// spawn returns a loader that the orchestrator may add while the run goes on.
func (u *up) spawn(role string, i int) (supervisor.Child, bool) {
	if role != roles.LoaderRole {
		return supervisor.Child{}, false
	}
	return u.child(role, u.fleet().Loader(u.first, i)), true
}
