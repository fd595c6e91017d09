// Package up runs the processes of one host of a run, as `millrace up` does. It checks the mixture file, joins the
// other hosts, and supervises the roles until the run ends.
package up

import (
	"cmp"
	"context"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"millrace/app/cluster"
	"millrace/app/config"
	"millrace/app/dryrun"
	"millrace/app/exit"
	"millrace/app/profile"
	"millrace/app/report"
	"millrace/app/roles"
	"millrace/app/rundir"
	"millrace/app/setup"
	"millrace/app/supervisor"
	"millrace/orchestrator/lease/hosts"
)

// Up is one `millrace up`, or a command that runs one of its roles: the processes of one host of a run. The caller sets
// the exported fields; Run completes them.
type Up struct {
	Role, Name string        // of a command of a single role; empty: all roles
	Placer     string        // see roles.Planning
	Mixture    string        // path of the mixture file
	RunDir     string        // of this host, for sockets and journal
	Metrics    string        // address of Prometheus metrics; empty: none
	Events     string        // directory of event records; empty: none
	Cluster    string        // path of the cluster file; empty: one host without etcd
	Listen     string        // host:port as other hosts reach this one; empty: that of the cluster file
	World      int           // trainer ranks of all hosts; 0: those of this host
	Grace      time.Duration // see supervisor.Config.TrainersGrace
	Serving

	Version  string    // of the program
	Out, Err io.Writer // the line "ready"; warnings and lines of roles

	file *cluster.File     // nil: no etcd
	here *hosts.Membership // nil: the run has one host

	fleet   setup.Fleet
	streams map[string]setup.Stream // all streams of the run
}

// TrainersGrace is the default of Up.Grace. Schedulers kill a job 30 s after SIGTERM; 5 s are left for the stop.
const TrainersGrace = 25 * time.Second

// command returns the command for messages.
func (u *Up) command() string { return "millrace " + cmp.Or(u.Role, "up") }

// runs reports whether this command runs a role.
func (u *Up) runs(role string) bool { return u.Role == "" || u.Role == role }

func (u *Up) validate() error {
	if err := u.Resolve(u.command()); err != nil {
		return err
	}
	if u.World == 0 {
		u.World = u.Ranks
	}
	usage := func(format string, args ...any) error {
		return exit.Usagef("%s: "+format, append([]any{u.command()}, args...)...)
	}
	switch {
	case u.RunDir == "":
		return usage("the run directory is missing: write one behind the mixture file, such as runs/a")
	case u.Ranks < 1 && u.runs(roles.SidecarRole):
		return usage("--ranks %d: want at least 1", u.Ranks)
	case u.Role != "" && u.Cluster == "":
		return usage("--cluster is missing: the roles of a run on several hosts find each other in etcd")
	case u.Role != "" && u.World < 1:
		return usage("--world-size is missing: write the trainer ranks of all hosts")
	case u.World != u.Ranks && u.Cluster == "":
		return usage("--world-size %d beside --ranks %d: ranks on several hosts need --cluster with a cluster file",
			u.World, u.Ranks)
	case u.Grace < 0:
		return usage("--grace %v: want 0s or more", u.Grace)
	case u.Placer != "" && u.Placer != u.engine():
		return usage("--placer %s: want %s, or nothing", u.Placer, u.engine())
	case u.Placer != "" && !u.isSpread():
		return usage("--placer %s: on one host, this command starts the loaders itself: leave the flag out", u.Placer)
	case u.Listen != "" && u.Cluster == "":
		return usage("--listen %s: there are no other hosts without --cluster", u.Listen)
	}
	if err := u.checkName(); err != nil {
		return usage("%v", err)
	}
	if !u.runs(roles.SidecarRole) {
		return nil
	}
	return u.host().Validate()
}

// engine returns the engine that this command may ask for loaders.
func (u *Up) engine() string {
	if u.Role == "" {
		return roles.Ray
	}
	return roles.Kubernetes
}

// host returns this host before it has agreed with others.
func (u *Up) host() hosts.Host {
	h := hosts.Host{Role: u.Role, First: u.First, Ranks: u.Ranks, World: u.World}
	if u.Ranks == 0 {
		h.Label = u.Name
	}
	return h
}

// place describes the place of this host in the run.
func (u *Up) place() setup.Place {
	return setup.Place{IsSpread: u.isSpread(), First: u.First, Ranks: u.Ranks, World: u.World}
}

// isSpread reports whether the run has several hosts.
func (u *Up) isSpread() bool { return u.Role != "" || u.World > u.Ranks }

// Run serves until the run ends, ctx ends, or a signal asks it to stop.
func (u *Up) Run(ctx context.Context) error {
	if err := u.validate(); err != nil {
		return err
	}
	living, leave, err := supervisor.WithParent(ctx)
	if err != nil {
		return err
	}
	defer leave()
	// A stop during the reading of the mixture is also clean. Later, the supervisor handles the signals.
	ctx, quiet := signal.NotifyContext(living, syscall.SIGINT, syscall.SIGTERM)
	defer quiet()
	cfg, err := config.Load(u.Mixture)
	if err != nil {
		return err
	}
	if cfg.Loaders.IsRange() && u.Role == "" && u.isSpread() && u.Placer == "" {
		return cfg.ErrorAt("loaders", "an `up` of several hosts has no engine that adds loaders",
			"write the number of loaders of each host, or start the run with millrace.ray.launch")
	}
	host, measured := setup.ThisHost(u.Ranks), setup.Measured{}
	if _, err := setup.Divide(cfg, host, measured); err != nil {
		return err
	}
	if err := setup.CheckIndexDir(cfg); err != nil {
		return err
	}
	if _, err := setup.TokenCache(cfg, nil); err != nil {
		return err
	}
	if u.RunDir, err = filepath.Abs(u.RunDir); err != nil {
		return err
	}
	if err := u.loadCluster(); err != nil {
		return err
	}
	digest, err := cfg.Digest()
	if err != nil {
		return err
	}
	if measured.Profiles, err = profile.Load(cfg); err != nil {
		return err
	}
	resources, err := setup.Divide(cfg, host, measured)
	if err != nil {
		return err
	}
	if u.isSpread() {
		if cfg, resources, err = u.join(ctx, cfg, digest, host, resources.Fleet, measured); err != nil {
			if ctx.Err() != nil {
				return nil // it was asked to stop while it waited for etcd or for another host
			}
			return err
		}
		defer u.here.Leave()
	}
	u.fleet, u.streams = resources.Fleet, map[string]setup.Stream{}
	for name, stream := range cfg.All() {
		if u.streams[name], err = u.prepare(ctx, stream, resources.Streams[name]); err != nil {
			return err
		}
	}
	return u.supervise(living, func() bool { return ctx.Err() != nil }, cfg)
}

// loadCluster reads the cluster file, if there is one.
func (u *Up) loadCluster() (err error) {
	if u.Cluster == "" {
		return nil
	}
	if u.file, err = cluster.Load(u.Cluster); err != nil {
		return err
	}
	if u.Listen != "" {
		err = u.file.ListenAt(u.Listen)
	}
	if u.Name == "" && u.Role == roles.OrchestratorRole {
		u.Name = roles.OrchestratorRole + "-" + u.file.Listen
	}
	return err
}

// join registers this host. It returns the configuration and the resources of this host as the hosts agreed. All hosts
// agree on the numbers of loaders and stripes, on the profiles, and on the axes of parallelism. Each host's `up` has
// the same number of loaders. If the number is a range, it counts the loaders of the whole run.
func (u *Up) join(
	ctx context.Context, cfg *config.Config, digest string, host setup.Host, fleet setup.Fleet, measured setup.Measured,
) (*config.Config, *setup.Resources, error) {
	me := u.host()
	me.Loaders, me.Readers = fleet.Loaders, fleet.Readers
	if u.Role == "" && !fleet.IsRange {
		me.Readers *= (u.World + u.Ranks - 1) / u.Ranks
	}
	me.Mixture, me.Program, me.Profile = digest, u.Version, profile.Facts(measured.Profiles)
	var err error
	if u.here, err = cluster.Join(ctx, u.file, me, u.Err); err != nil {
		return nil, nil, err
	}
	agreed := u.here.Host()
	measured = setup.Measured{Loaders: agreed.Loaders, Readers: agreed.Readers}
	if measured.Profiles, err = profile.ReadFacts(cfg, agreed.Profile); err != nil {
		return nil, nil, err
	}
	if cfg, err = withAxes(cfg, agreed.Axes); err != nil {
		return nil, nil, err
	}
	resources, err := setup.Divide(cfg, host, measured)
	return cfg, resources, err
}

// prepare returns a stream with the facts about its data, or refuses one that cannot be served.
func (u *Up) prepare(ctx context.Context, cfg *config.Config, part setup.Part) (out setup.Stream, err error) {
	out.Config, out.Part = cfg, part
	if err := cfg.Payload(); err != nil {
		return out, err
	}
	if err := setup.CheckLoaderMemory(cfg, part); err != nil {
		return out, err
	}
	if u.runs(roles.SidecarRole) {
		if err := setup.CheckSidecarMemory(cfg, part, u.Ranks); err != nil {
			return out, err
		}
	}
	if !u.runs(roles.OrchestratorRole) {
		encoding, err := setup.Tokenizer(cfg)
		out.Facts = config.Facts{Vocabulary: setup.Vocabulary(encoding)}
		return out, err
	}
	options := dryrun.Options{Part: &part, Logger: roles.NewLogger("up")}
	if out.Facts, err = dryrun.Measure(ctx, cfg, options); err != nil {
		return out, report.Problems(u.Err, err)
	}
	_, err = roles.OrchestratorConfig(&out, u.World, u.Version)
	return out, err
}

// writeConfigs makes the directories of further streams, and writes the configuration of every stream for the roles.
func (u *Up) writeConfigs(cfg *config.Config) error {
	// Clients take the list of streams as complete when the run's own configuration is there.
	for i := range cfg.Streams {
		if err := supervisor.MakeStream(u.RunDir, cfg.Streams[i].Name); err != nil {
			return err
		}
	}
	if u.here != nil {
		site := cluster.Site{Host: u.here.Host(), File: u.file.Path, Listen: u.file.Listen}
		if err := cluster.WriteSite(u.RunDir, site); err != nil {
			return err
		}
	}
	for name := range cfg.All() {
		stream := u.streams[name]
		resolved, err := stream.Marshal()
		if err != nil {
			return err
		}
		if err := os.WriteFile(rundir.ConfigFile(supervisor.StreamDir(u.RunDir, name)), resolved, 0o600); err != nil {
			return err
		}
	}
	return nil
}
