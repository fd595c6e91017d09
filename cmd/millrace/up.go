package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"millrace/app/cluster"
	"millrace/app/config"
	"millrace/app/dryrun"
	"millrace/app/exit"
	"millrace/app/profile"
	"millrace/app/roles"
	"millrace/app/rundir"
	"millrace/app/setup"
	"millrace/app/supervisor"
	"millrace/orchestrator/lease/hosts"
)

// up is the flags of `millrace up`, and of the commands that run one of its roles.
type up struct {
	role, name                                        string // of a command of a single role; empty: all roles
	placer                                            string // see roles.Planning
	mixture, runDir, metrics, events, cluster, listen string
	world                                             int
	grace                                             time.Duration // see supervisor.Config.TrainersGrace
	serving

	file *cluster.File     // nil: no etcd
	here *hosts.Membership // nil: the run has one host
}

// trainersGrace is the default of --grace. Schedulers kill a job 30 s after SIGTERM; 5 s are left for the stop.
const trainersGrace = 25 * time.Second

func upCommand() *cobra.Command {
	u := &up{}
	c := &cobra.Command{
		Use:   "up MIXTURE --ranks N --run-dir DIR",
		Short: "Serve a mixture to the trainer ranks of this host",
		Long: `Serve a mixture to the N trainer ranks of this host, on DIR/rank-0.sock … DIR/rank-<N-1>.sock.

up prints a line that begins with "ready" when all sockets accept. A finite run ends by itself, with status 0, after
every rank has taken all batches. Ctrl-C or SIGTERM stops cleanly, with status 0. After SIGTERM, which schedulers send
to all processes of a job, trainers get batches until they leave, for --grace at most, so that they can end their step
and save it. Another signal stops at once.

DIR keeps the run's journal. The next up on the same directory continues the run, also after a kill. In a directory with
history, each trainer declares its start: a saved state, "latest" or "fresh".

If MIXTURE is -, up reads the mixture file from standard input. Its relative paths are relative to the working
directory.

Every role is a separate process, and up restarts a process that dies. A shadow takes over for a lost loader at once
(reliability.shadows in the mixture file). When a disk is full, the run waits. up prints "warning: …" when a
capability goes missing and "over: …" when it is back; millrace status lists the missing ones.

With --cluster, this up plans only while it has the run's lease in etcd. A run with ranks on several hosts needs an up
on each, with the same mixture file and --world-size, and with its own --first-rank (docs/cluster.md). The commands
orchestrator, loader, shadow and sidecar run one of the roles, for an engine that places them.`,
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
	f.IntVar(&u.world, "world-size", 0, "trainer ranks of all hosts (default: --ranks)")
	u.serving.flags(f)
	u.flags(f)
	f.StringVar(&u.metrics, "metrics", "", "serve Prometheus metrics at http://ADDRESS/metrics, such as 127.0.0.1:9464")
	f.StringVar(&u.placer, "placer", "",
		"`engine` to ask for more loaders if the run has several hosts: ray (default: none)")
	return c
}

// flags adds the flags of all commands that run roles.
func (u *up) flags(f *pflag.FlagSet) {
	f.StringVar(&u.runDir, "run-dir", "", "directory of this host for sockets and journal (required)")
	f.StringVar(&u.cluster, "cluster", "", "YAML file of the etcd cluster that the hosts of this run share")
	f.StringVar(&u.listen, "listen", "",
		"host:port as the other hosts reach this one (default: listen of the cluster file)")
	f.DurationVar(&u.grace, "grace", trainersGrace,
		"`time` for which trainers may go on after SIGTERM; 0s: stop at once")
	f.StringVar(&u.events, "events", "", "directory for event records of the roles, one JSON object a line")
}

// command returns the command for messages.
func (u *up) command() string { return "millrace " + cmp.Or(u.role, "up") }

// runs reports whether this command runs a role.
func (u *up) runs(role string) bool { return u.role == "" || u.role == role }

func (u *up) validate() error {
	if err := u.resolve(u.command()); err != nil {
		return err
	}
	if u.world == 0 {
		u.world = u.ranks
	}
	usage := func(format string, args ...any) error {
		return exit.Usagef("%s: "+format, append([]any{u.command()}, args...)...)
	}
	switch {
	case u.runDir == "":
		return usage("--run-dir is missing: write a directory for sockets and journal, such as --run-dir runs/a")
	case u.ranks < 1 && u.runs(sidecarRole):
		return usage("--ranks %d: want at least 1", u.ranks)
	case u.role != "" && u.cluster == "":
		return usage("--cluster is missing: the roles of a run on several hosts find each other in etcd")
	case u.role != "" && u.world < 1:
		return usage("--world-size is missing: write the trainer ranks of all hosts")
	case u.world != u.ranks && u.cluster == "":
		return usage("--world-size %d beside --ranks %d: ranks on several hosts need --cluster with a cluster file",
			u.world, u.ranks)
	case u.grace < 0:
		return usage("--grace %v: want 0s or more", u.grace)
	case u.placer != "" && u.placer != u.engine():
		return usage("--placer %s: want %s, or nothing", u.placer, u.engine())
	case u.placer != "" && !u.isSpread():
		return usage("--placer %s: on one host, this command starts the loaders itself: leave the flag out", u.placer)
	case u.listen != "" && u.cluster == "":
		return usage("--listen %s: there are no other hosts without --cluster", u.listen)
	}
	if err := u.checkName(); err != nil {
		return usage("%v", err)
	}
	if !u.runs(sidecarRole) {
		return nil
	}
	return u.host().Validate()
}

// engine returns the engine that this command may ask for loaders.
func (u *up) engine() string {
	if u.role == "" {
		return roles.Ray
	}
	return roles.Kubernetes
}

// host returns this host before it has agreed with others.
func (u *up) host() hosts.Host {
	h := hosts.Host{Role: u.role, First: u.first, Ranks: u.ranks, World: u.world}
	if u.ranks == 0 {
		h.Label = u.name
	}
	return h
}

// place describes the place of this host in the run.
func (u *up) place() setup.Place {
	return setup.Place{IsSpread: u.isSpread(), First: u.first, Ranks: u.ranks, World: u.world}
}

// isSpread reports whether the run has several hosts.
func (u *up) isSpread() bool { return u.role != "" || u.world > u.ranks }

func (u *up) run(c *cobra.Command) error {
	if err := u.validate(); err != nil {
		return err
	}
	living, leave, err := supervisor.WithParent(c.Context())
	if err != nil {
		return err
	}
	defer leave()
	// A stop during the reading of the mixture is also clean. Later, the supervisor handles the signals.
	ctx, quiet := signal.NotifyContext(living, syscall.SIGINT, syscall.SIGTERM)
	defer quiet()
	cfg, err := config.Load(u.mixture)
	if err != nil {
		return err
	}
	if cfg.Loaders.IsRange() && u.role == "" && u.isSpread() && u.placer == "" {
		return cfg.ErrorAt("loaders", "an `up` of several hosts has no engine that adds loaders",
			"write the number of loaders of each host, or start the run with millrace.ray.launch")
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
	if err := u.loadCluster(); err != nil {
		return err
	}
	digest, err := cfg.Digest()
	if err != nil {
		return err
	}
	if err := profile.Load(cfg); err != nil { // after the digest: hosts may have different ones
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
	return u.supervise(living, func() bool { return ctx.Err() != nil }, c, cfg)
}

// loadCluster reads the cluster file, if there is one.
func (u *up) loadCluster() (err error) {
	if u.cluster == "" {
		return nil
	}
	if u.file, err = cluster.Load(u.cluster); err != nil {
		return err
	}
	if u.listen != "" {
		err = u.file.ListenAt(u.listen)
	}
	if u.name == "" && u.role == orchestratorRole {
		u.name = orchestratorRole + "-" + u.file.Listen
	}
	return err
}

// join registers this host. All hosts agree on the numbers of loaders and stripes, and on the profiles. The loaders of
// an `up` are as many on each host, unless they are a range: that counts those of the run.
func (u *up) join(ctx context.Context, c *cobra.Command, cfg *config.Config, digest string) (err error) {
	me := u.host()
	me.Loaders, me.Readers = setup.Loaders(cfg), setup.Readers(cfg)
	if u.role == "" && !cfg.Loaders.IsRange() {
		me.Readers *= (u.world + u.ranks - 1) / u.ranks
	}
	me.Mixture, me.Program, me.Profile = digest, programVersion(), profile.Facts(cfg)
	if u.here, err = cluster.Join(ctx, u.file, me, c.ErrOrStderr()); err != nil {
		return err
	}
	agreed := u.here.Host()
	cfg.Loaders.Count, cfg.Loaders.Readers = uint32(agreed.Loaders), uint32(agreed.Readers)
	return errors.Join(profile.Adopt(cfg, agreed.Profile), takeAxes(cfg, agreed.Axes))
}

// prepare refuses a stream that cannot be served.
func (u *up) prepare(ctx context.Context, c *cobra.Command, cfg *config.Config) error {
	if err := cfg.Payload(); err != nil {
		return err
	}
	if err := setup.CheckLoaderMemory(cfg); err != nil {
		return err
	}
	if u.runs(sidecarRole) {
		if err := setup.CheckSidecarMemory(cfg, u.ranks); err != nil {
			return err
		}
	}
	if _, err := setup.Tokenizer(cfg); err != nil {
		return err
	}
	if !u.runs(orchestratorRole) {
		return nil
	}
	if err := dryrun.Measure(ctx, cfg, dryrun.Options{Logger: roles.NewLogger("up")}); err != nil {
		return firstProblem(c, err)
	}
	_, err := roles.OrchestratorConfig(cfg, u.world, programVersion())
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
		site := cluster.Site{Host: u.here.Host(), File: u.file.Path, Listen: u.file.Listen}
		if err := cluster.WriteSite(u.runDir, site); err != nil {
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
