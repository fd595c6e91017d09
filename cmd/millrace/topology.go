package main

import (
	"cmp"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"millrace/app/exit"
	"millrace/app/report"
	"millrace/app/reshape"
)

func topologyCommand() *cobra.Command {
	var r reshape.Request
	asJSON := false
	c := &cobra.Command{
		Use:   "topology DIR --ranks N",
		Short: "Give this host other ranks, and the run another topology, while up lives on",
		Long: `Give the host of the run in DIR other ranks, and the run another topology, while its up lives on.

First let the trainers leave at a step's end, with a saved state. Then call this command for each host of the run, and
start the trainers of the new ranks with the state. The run takes the new topology when the first of them joins and no
trainer of the old topology is connected. Only the sidecar starts again: it makes the sockets of the new ranks. Further
streams take the topology, too.

While the command waits for trainers of this host to leave, a second one is refused. Ctrl-C withdraws the request.`,
		Example: "  millrace topology runs/a --ranks 4\n" +
			"  millrace topology runs/a --ranks 8 --first-rank 8 --world-size 16 --tp 2",
		Args: exactArgs(1, "one run directory"),
		RunE: func(c *cobra.Command, args []string) error {
			if c.Flags().Changed("world-size") && r.World < 1 {
				return exit.Usagef("millrace topology: --world-size %d: want the ranks of all hosts, at least 1, or "+
					"leave it out on one host", r.World)
			}
			return changeTopology(c, args[0], r, asJSON)
		},
	}
	f := c.Flags()
	f.IntVar(&r.Ranks, "ranks", 0, "trainer ranks on this host (required)")
	f.IntVar(&r.First, "first-rank", 0, "first of this host's ranks, if there are more hosts")
	f.IntVar(&r.World, "world-size", 0, "trainer ranks of all hosts (default: --ranks)")
	f.IntVar(&r.TP, "tp", 0, "tensor-parallel ranks (default here and below: as in the mixture file)")
	f.IntVar(&r.CP, "cp", 0, "context-parallel ranks")
	f.IntVar(&r.PP, "pp", 0, "pipeline stages")
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	f.DurationVar(&r.Patience, "timeout", time.Minute, "time limit for the trainers to leave")
	return c
}

func changeTopology(c *cobra.Command, dir string, r reshape.Request, asJSON bool) error {
	ctx, stop := untilStopped(c)
	defer stop()
	r.World = cmp.Or(r.World, r.Ranks)
	if err := reshape.Change(ctx, dir, r); err != nil {
		return err
	}
	if asJSON {
		out := map[string]int{"ranks": r.Ranks, "first_rank": r.First, "world_size": r.World}
		return report.Encode(c.OutOrStdout(), out)
	}
	_, err := fmt.Fprintf(c.OutOrStdout(), "ready: %d ranks from rank %d on, of %d\n", r.Ranks, r.First, r.World)
	return err
}
