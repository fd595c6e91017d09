package main

import (
	"fmt"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"millrace/internal/app/cluster"
	"millrace/internal/app/exit"
	"millrace/internal/app/member"
	"millrace/internal/app/place/mailbox"
	"millrace/internal/app/roles"
	"millrace/internal/app/supervisor"
	"millrace/orchestrator/lease"
)

// roleCommands are the commands of the processes that up starts. They are hidden from help.
func roleCommands() []*cobra.Command {
	return []*cobra.Command{orchestratorCommand(), loaderCommand(), shadowCommand(), sidecarCommand()}
}

func orchestratorCommand() *cobra.Command {
	c, process := roleCommand("orchestrator", "Plan, journal and publish (started by up)")
	var o roles.Planning
	c.Flags().StringVar(&o.Metrics, "metrics", "", "address to serve /metrics on")
	c.Flags().StringVar(&o.Up, "up", "", "id of the up that started this process")
	c.Flags().StringVar(&o.Cluster, "cluster", "", "file of the etcd cluster that guards the run")
	c.RunE = func(c *cobra.Command, _ []string) error { return process.Orchestrate(c.Context(), o) }
	return c
}

func loaderCommand() *cobra.Command {
	c, process := roleCommand(roles.LoaderRole, "Read sources ahead (started by up)")
	c.RunE = func(c *cobra.Command, _ []string) error { return process.Load(c.Context(), false) }
	return c
}

func shadowCommand() *cobra.Command {
	c, process := roleCommand(roles.ShadowRole, "Stand by for loaders (started by up)")
	c.RunE = func(c *cobra.Command, _ []string) error { return process.Load(c.Context(), true) }
	return c
}

func sidecarCommand() *cobra.Command {
	c, process := roleCommand("sidecar", "Serve the ranks of this host (started by up)")
	first := c.Flags().Int("first-rank", 0, "first rank of this host")
	c.RunE = func(c *cobra.Command, _ []string) error { return process.Serve(c.Context(), *first) }
	return c
}

// roleCommand is a command with the flags that up passes to every child.
func roleCommand(use, short string) (*cobra.Command, *roles.Process) {
	process := &roles.Process{Version: programVersion()}
	c := &cobra.Command{Use: use, Short: short, Hidden: true, Args: cobra.NoArgs}
	f := c.Flags()
	f.StringVar(&process.RunDir, "run-dir", "", "run directory")
	f.StringVar(&process.Name, "name", "", "name of this process in the run")
	f.IntVar(&process.Ranks, "ranks", 1, "trainer ranks of this host")
	f.IntVar(&process.World, "world-size", 1, "trainer ranks of the run")
	return c, process
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
