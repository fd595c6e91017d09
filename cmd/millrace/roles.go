package main

import (
	"github.com/spf13/cobra"

	"millrace/internal/app/roles"
)

// roleCommands are the commands of the processes that up starts. They are hidden from help.
func roleCommands() []*cobra.Command {
	return []*cobra.Command{orchestratorCommand(), loaderCommand(), shadowCommand(), sidecarCommand()}
}

func orchestratorCommand() *cobra.Command {
	c, process := roleCommand("orchestrator", "Plan, journal and publish (started by up)")
	metrics := c.Flags().String("metrics", "", "address to serve /metrics on")
	up := c.Flags().String("up", "", "id of the up that started this process")
	c.RunE = func(c *cobra.Command, _ []string) error { return process.Orchestrate(c.Context(), *metrics, *up) }
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
	first := c.Flags().Int("first-rank", 0, "the run's rank behind rank-0.sock")
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
