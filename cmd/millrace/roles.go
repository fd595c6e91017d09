package main

import (
	"github.com/spf13/cobra"

	"millrace/app/roles"
	"millrace/app/up"
)

// roleCommand is the command of the processes that up starts. It is hidden from help.
func roleCommand() *cobra.Command {
	c := &cobra.Command{Use: "role", Short: "Run a process of a run (started by up)", Hidden: true, Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.AddCommand(orchestratorCommand(), loaderCommand(), shadowCommand(), sidecarCommand())
	return c
}

func orchestratorCommand() *cobra.Command {
	c, process := processCommand(roles.OrchestratorRole, "Plan, journal and publish (started by up)")
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
	c, process := processCommand(roles.SidecarRole, "Serve the ranks of this host (started by up)")
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
	c := &cobra.Command{Use: use, Short: short, Args: noArgs}
	f := c.Flags()
	f.StringVar(&process.RunDir, "run-dir", "", "run directory")
	f.StringVar(&process.Name, "name", "", "name of this process in the run")
	f.IntVar(&process.Ranks, "ranks", 1, "trainer ranks of this host")
	f.IntVar(&process.World, "world-size", 1, "trainer ranks of the run")
	return c, process
}

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
func single(role, use, short, long, example string) (*up.Up, *cobra.Command) {
	u := &up.Up{Role: role, Version: programVersion()}
	c := &cobra.Command{
		Use:   role + " MIXTURE DIR " + use + " --world-size N --cluster FILE",
		Short: short,
		Long:  long + "\n\nDIR, or --run-dir DIR, is local to this host. docs/cluster.md has the details.",
		Example: "  millrace " + role + " mixture.yaml runs/a " + example +
			"--world-size 64 --cluster cluster.yaml",
		Args:   serveArgs,
		RunE:   func(c *cobra.Command, args []string) error { return serve(c, u, args) },
		Hidden: true, // engines start it

	}
	c.Flags().IntVar(&u.World, "world-size", 0, "trainer ranks of all hosts (required)")
	upFlags(c.Flags(), u)
	return u, c
}

func singleOrchestrator() *cobra.Command {
	u, c := single(roles.OrchestratorRole, "[--name NAME]", "Plan a run with several hosts",
		`Plan a run with several hosts, or stand by to plan it. One process is the leader, which etcd elects; the others
keep copies of its journal. DIR keeps the journal: the next orchestrator on the same directory continues the run.

SIGTERM stops it cleanly. It ends by itself with the run: with status 0, or with status 1 and the reason.`, "")
	c.Flags().StringVar(&u.Name, "name", "", "name of this process, unique in the run (default: from --listen)")
	c.Flags().StringVar(&u.Metrics, "metrics", "",
		"serve Prometheus metrics at http://ADDRESS/metrics, such as 127.0.0.1:9464")
	c.Flags().StringVar(&u.Placer, "placer", "",
		"`engine` to ask for loaders if the mixture file has a range of them: kubernetes (default: none)")
	return c
}

func singleReader(role, name, short, long string) *cobra.Command {
	u, c := single(role, "--name NAME", short, long, "--name "+name+" ")
	c.Flags().StringVar(&u.Name, "name", "", "name of this process, unique in the run, such as "+name+" (required)")
	return c
}

func singleSidecar() *cobra.Command {
	u, c := single(roles.SidecarRole, "--ranks N --first-rank R",
		"Serve the ranks of this host in a run with several hosts",
		`Serve the N trainer ranks of this host from rank R on, on DIR/rank-<R>.sock and the following. The number of
ranks may differ between hosts.

SIGTERM stops it cleanly. It ends by itself with the run: with status 0 after every rank has taken all batches, or with
status 1 and the reason.`, "--ranks 8 --first-rank 16 ")
	servingFlags(c.Flags(), &u.Serving)
	return c
}
