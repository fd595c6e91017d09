package main

import (
	"fmt"
	"os/signal"
	"regexp"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"millrace/app/cluster"
	"millrace/app/exit"
	"millrace/app/member"
	"millrace/app/place/mailbox"
	"millrace/app/roles"
	"millrace/app/supervisor"
	"millrace/orchestrator/lease"
)

// roleCommand is the command of the processes that up starts. It is hidden from help.
func roleCommand() *cobra.Command {
	c := &cobra.Command{Use: "role", Short: "Run a process of a run (started by up)", Hidden: true, Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.AddCommand(orchestratorCommand(), loaderCommand(), shadowCommand(), sidecarCommand())
	return c
}

func orchestratorCommand() *cobra.Command {
	c, process := processCommand(orchestratorRole, "Plan, journal and publish (started by up)")
	var o roles.Planning
	c.Flags().StringVar(&o.Metrics, "metrics", "", "address to serve /metrics on")
	c.Flags().StringVar(&o.Up, "up", "", "id of the up that started this process")
	c.Flags().StringVar(&o.Cluster, "cluster", "", "file of the etcd cluster that guards the run")
	c.Flags().StringVar(&o.Placer, "placer", "", "engine that is asked for loaders")
	c.RunE = func(c *cobra.Command, _ []string) error { return process.Orchestrate(c.Context(), o) }
	return c
}

func loaderCommand() *cobra.Command {
	c, process := processCommand(roles.LoaderRole, "Read sources ahead (started by up)")
	c.RunE = func(c *cobra.Command, _ []string) error { return process.Load(c.Context(), false) }
	return c
}

func shadowCommand() *cobra.Command {
	c, process := processCommand(roles.ShadowRole, "Stand by for loaders (started by up)")
	c.RunE = func(c *cobra.Command, _ []string) error { return process.Load(c.Context(), true) }
	return c
}

func sidecarCommand() *cobra.Command {
	c, process := processCommand(sidecarRole, "Serve the ranks of this host (started by up)")
	first := c.Flags().Int("first-rank", 0, "first rank of this host")
	c.Flags().UintSliceVar(&process.Users, "allow-uids", nil, "users whose trainers may connect")
	c.Flags().IntVar(&process.TP, "tp", 0, "tensor-parallel ranks")
	c.Flags().IntVar(&process.CP, "cp", 0, "context-parallel ranks")
	c.Flags().IntVar(&process.PP, "pp", 0, "pipeline stages")
	c.RunE = func(c *cobra.Command, _ []string) error { return process.Serve(c.Context(), *first) }
	return c
}

// processCommand is a command with the flags that up passes to every child.
func processCommand(use, short string) (*cobra.Command, *roles.Process) {
	process := &roles.Process{Version: programVersion()}
	c := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs}
	f := c.Flags()
	f.StringVar(&process.RunDir, "run-dir", "", "run directory")
	f.StringVar(&process.Name, "name", "", "name of this process in the run")
	f.IntVar(&process.Ranks, "ranks", 1, "trainer ranks of this host")
	f.IntVar(&process.World, "world-size", 1, "trainer ranks of the run")
	return c, process
}

// The roles that an `up` runs, beside those of package roles.
const (
	orchestratorRole = "orchestrator"
	sidecarRole      = "sidecar"
)

// singleCommands are the commands that run one role of a run with several hosts, for an engine that places processes.
// Each is an `up` with that role alone: it has a supervisor, a run directory and a registration of its own.
func singleCommands() []*cobra.Command {
	return []*cobra.Command{
		singleOrchestrator(),
		singleReader(roles.LoaderRole, "loader-3", "Read sources for a run with several hosts",
			`Read sources for a run with several hosts. One loader process joins the run, and gets stripes of the
sources to read. Any number of loaders may come and go while the run goes on, and no batch changes.

SIGTERM makes it hand over its stripes to the other loaders. It then ends with status 0, after 20 seconds at the
latest. It ends by itself with the run: with status 0, or with status 1 and the reason. If its process dies, it starts
another.

A second command with the same --name waits 15 seconds, in case that the first is dead, and is then refused.`),
		singleReader(roles.ShadowRole, "shadow-0", "Stand by for the loaders of a run with several hosts",
			`Stand by for the loaders of a run with several hosts. One process follows stripes and takes over at once
from a loader that dies. It reads nothing else.

SIGTERM makes it leave; it ends with status 0. It ends by itself with the run: with status 0, or with status 1 and the
reason. If its process dies, it starts another.`),
		singleSidecar(),
	}
}

// single is a command of one role. It has its long text, its example and no flags of its own yet.
func single(role, use, short, long, example string) (*up, *cobra.Command) {
	u := &up{role: role}
	c := &cobra.Command{
		Use:   role + " MIXTURE " + use + " --world-size N --cluster FILE --run-dir DIR",
		Short: short,
		Long:  long + "\n\nDIR is local to this host. docs/cluster.md has the details.",
		Example: "  millrace " + role + " mixture.yaml " + example +
			"--world-size 64 --cluster cluster.yaml --run-dir runs/a",
		Args: exactArgs(1, "one mixture file"),
		RunE: func(c *cobra.Command, args []string) error {
			u.mixture = args[0]
			return u.run(c)
		},
	}
	c.Flags().IntVar(&u.world, "world-size", 0, "trainer ranks of all hosts (required)")
	u.flags(c.Flags())
	return u, c
}

func singleOrchestrator() *cobra.Command {
	u, c := single(orchestratorRole, "[--name NAME]", "Plan a run with several hosts",
		`Plan a run with several hosts, or stand by to plan it. One process is the leader, which etcd elects; the others
keep copies of its journal. DIR keeps the journal: the next orchestrator on the same directory continues the run.

SIGTERM stops it cleanly. It ends by itself with the run: with status 0, or with status 1 and the reason.`, "")
	c.Flags().StringVar(&u.name, "name", "", "name of this process, unique in the run (default: from --listen)")
	c.Flags().StringVar(&u.metrics, "metrics", "",
		"serve Prometheus metrics at http://ADDRESS/metrics, such as 127.0.0.1:9464")
	c.Flags().StringVar(&u.placer, "placer", "",
		"`engine` to ask for loaders if the mixture file has a range of them: kubernetes (default: none)")
	return c
}

func singleReader(role, name, short, long string) *cobra.Command {
	u, c := single(role, "--name NAME", short, long, "--name "+name+" ")
	c.Flags().StringVar(&u.name, "name", "", "name of this process, unique in the run, such as "+name+" (required)")
	return c
}

func singleSidecar() *cobra.Command {
	u, c := single(sidecarRole, "--ranks N --first-rank R", "Serve the ranks of this host in a run with several hosts",
		`Serve the N trainer ranks of this host from rank R on, on DIR/rank-<R>.sock and the following. The number of
ranks may differ between hosts.

SIGTERM stops it cleanly. It ends by itself with the run: with status 0 after every rank has taken all batches, or with
status 1 and the reason.`, "--ranks 8 --first-rank 16 ")
	u.serving.flags(c.Flags())
	return c
}

// serving is the flags of commands that serve ranks.
type serving struct {
	ranks, first int
	index        int    // number of this host; -1: first counts
	users        []uint // whose trainers may connect, beside this one
}

func (s *serving) flags(f *pflag.FlagSet) {
	f.IntVar(&s.ranks, "ranks", 1, "trainer ranks on this host")
	f.IntVar(&s.first, "first-rank", 0, "first of this host's ranks, if there are more hosts")
	f.IntVar(&s.index, "index", -1, "number of this host, from 0, if all have the same --ranks: sets --first-rank")
	f.UintSliceVar(&s.users, "allow-uids", nil, "user ids whose trainers may connect, beside this user's")
}

// resolve derives the first rank from the number of this host.
func (s *serving) resolve(command string) error {
	switch {
	case s.index < -1:
		return exit.Usagef("%s: --index %d: want 0 or more", command, s.index)
	case s.index >= 0 && s.first != 0:
		return exit.Usagef("%s: --index %d beside --first-rank %d: write one of them", command, s.index, s.first)
	case s.index >= 0:
		s.first = s.index * s.ranks
	}
	return nil
}

// args returns the flags of the sidecar alone.
func (s *serving) args() []string {
	out := []string{"--first-rank", strconv.Itoa(s.first)}
	for _, user := range s.users {
		out = append(out, "--allow-uids", strconv.FormatUint(uint64(user), 10))
	}
	return out
}

// A name is part of file names, of keys in etcd and of lines for people. Names with two numbers are those of the
// processes that an `up` on one of several hosts starts.
var (
	goodName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._:-]{0,62}$`)
	ownName  = regexp.MustCompile(`^(loader|shadow)-[0-9]+-[0-9]+$`)
)

// checkName refuses a name that a process of a single role cannot have.
func (u *up) checkName() error {
	switch isReader := u.role == roles.LoaderRole || u.role == roles.ShadowRole; {
	case u.name == "" && isReader:
		return fmt.Errorf("--name is missing: write a name that no other process of the run has, such as %s-3", u.role)
	case u.name == "":
		return nil
	case !goodName.MatchString(u.name):
		return fmt.Errorf("--name %q: want a letter, and then at most 62 letters, digits, dots and dashes", u.name)
	case ownName.MatchString(u.name):
		return fmt.Errorf("--name %s: names with two numbers are those of `millrace up`: write one number", u.name)
	}
	return nil
}

// handOverGrace is the time that a loader has to hand over its stripes and to leave.
const handOverGrace = 25 * time.Second

// stopGrace returns the time from the wish to stop until children are killed; 0: the default.
func (u *up) stopGrace() time.Duration {
	if u.role == roles.LoaderRole || u.role == roles.ShadowRole {
		return handOverGrace
	}
	return 0
}

// etcdCommand is not a role: a run does not start etcd.
func etcdCommand() *cobra.Command {
	var m member.Member
	c := &cobra.Command{
		Use:   "etcd --dir DIR",
		Short: "Run an etcd member for development",
		Long: `Run one etcd member on this host, to try "millrace up --cluster" (docs/cluster.md). Its data stay in DIR.
It prints a line that begins with "ready" when it answers. Ctrl-C or SIGTERM stops it cleanly.

The member listens on loopback alone, without passwords and encryption. For runs that matter, use a cluster of three
members on three hosts.

The program etcd is not part of millrace: the command looks for it in PATH and among the programs that tools/etcd.sh
has built.`,
		Example: "  millrace etcd --dir etcd-data\n  millrace up mixture.yaml --run-dir runs/a --cluster cluster.yaml",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if m.Dir == "" {
				return exit.Usagef(
					"millrace etcd: --dir is missing: write a directory for the data, such as --dir etcd-data",
				)
			}
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			ctx, leave, err := supervisor.WithParent(ctx)
			if err != nil {
				return err
			}
			defer leave()
			m.Log = c.ErrOrStderr()
			m.Ready = func(url string) { fmt.Fprintf(c.OutOrStdout(), "ready: etcd on %s\n", url) }
			return m.Run(ctx)
		},
	}
	c.Flags().StringVar(&m.Dir, "dir", "", "directory of the data (required)")
	c.Flags().StringVar(&m.Listen, "listen", "127.0.0.1:2379", "loopback address for clients")
	c.Flags().StringVar(&m.Program, "program", "", "path of etcd's program (default: etcd in PATH)")
	return c
}

// mailboxCommand is the side of an engine in the mailbox of a run. The keeper of millrace.ray starts it. It ends with
// its input.
func mailboxCommand() *cobra.Command {
	c := &cobra.Command{Use: "mailbox --cluster FILE", Short: "Pass goals to an engine (started by millrace.ray)",
		Hidden: true, Args: noArgs}
	path := c.Flags().String("cluster", "", "file of the etcd cluster")
	c.RunE = func(c *cobra.Command, _ []string) error {
		f, err := cluster.Load(*path)
		if err != nil {
			return err
		}
		cfg := f.Etcd()
		etcd, err := lease.Dial(c.Context(), cfg)
		if err != nil {
			return err
		}
		defer etcd.Close()
		return mailbox.Keep(c.Context(), etcd, cfg, c.InOrStdin(), c.OutOrStdout())
	}
	return c
}
