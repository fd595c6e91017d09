package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"millrace/app/exit"
	"millrace/app/report"
	"millrace/app/reshape"
	"millrace/app/rundir"
	"millrace/app/supervisor"
	"millrace/app/up"
	"millrace/internal/seam"
	"millrace/orchestrator/lease/hosts"
)

// topology is the flags of `millrace topology`.
type topology struct {
	reshape.Request
	dir  string
	json bool
}

// applyWithin is the time limit for etcd and for the start of a sidecar.
const applyWithin = time.Minute

func topologyCommand() *cobra.Command {
	t := &topology{}
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
			t.dir = args[0]
			if c.Flags().Changed("world-size") && t.World < 1 {
				return exit.Usagef("millrace topology: --world-size %d: want the ranks of all hosts, at least 1, or "+
					"leave it out on one host", t.World)
			}
			return t.run(c)
		},
	}
	f := c.Flags()
	f.IntVar(&t.Ranks, "ranks", 0, "trainer ranks on this host (required)")
	f.IntVar(&t.First, "first-rank", 0, "first of this host's ranks, if there are more hosts")
	f.IntVar(&t.World, "world-size", 0, "trainer ranks of all hosts (default: --ranks)")
	f.IntVar(&t.TP, "tp", 0, "tensor-parallel ranks (default here and below: as in the mixture file)")
	f.IntVar(&t.CP, "cp", 0, "context-parallel ranks")
	f.IntVar(&t.PP, "pp", 0, "pipeline stages")
	f.BoolVar(&t.json, "json", false, "print one JSON object")
	f.DurationVar(&t.Patience, "timeout", time.Minute, "time limit for the trainers to leave")
	return c
}

func (t *topology) run(c *cobra.Command) error {
	if t.Ranks < 1 {
		return exit.Usagef("millrace topology: --ranks %d: want the number of this host's ranks, at least 1", t.Ranks)
	}
	if t.TP < 0 || t.CP < 0 || t.PP < 0 {
		return exit.Usagef("millrace topology: --tp %d, --cp %d, --pp %d: want 1 or more each, or leave them out", t.TP,
			t.CP, t.PP)
	}
	t.World = cmp.Or(t.World, t.Ranks)
	if err := t.host().Validate(); err != nil {
		return exit.Usagef("millrace topology: %w", err)
	}
	ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, t.Patience+applyWithin)
	defer cancel()
	before, running, err := rundir.Roles(t.dir)
	if err != nil {
		return exit.Failure(err)
	}
	if !running || !supervisor.IsServed(t.dir) {
		return exit.Failuref("no `millrace up` runs on %s: give the ranks to `millrace up` itself", t.dir)
	}
	if err := reshape.Ask(ctx, seam.System{}, t.dir, t.Request, t.serves); err != nil {
		if errors.Is(err, reshape.ErrPending) {
			err = fmt.Errorf("%w: it waits for trainers to leave, or for etcd. Let it end, or stop it, and call this "+
				"again", err)
		}
		return exit.Failure(err)
	}
	if err := t.awaitSidecar(ctx, sidecarOf(before).Pid); err != nil {
		return exit.Failure(err)
	}
	if t.json {
		out := map[string]int{"ranks": t.Ranks, "first_rank": t.First, "world_size": t.World}
		return report.Encode(c.OutOrStdout(), out)
	}
	fmt.Fprintf(c.OutOrStdout(), "ready: %d ranks from rank %d on, of %d\n", t.Ranks, t.First, t.World)
	return nil
}

// serves returns an error if the `up` has ended.
func (t *topology) serves() error {
	if !supervisor.IsServed(t.dir) {
		return fmt.Errorf("the `millrace up` of %s has ended: start it again with the ranks that you want", t.dir)
	}
	return nil
}

func (t *topology) host() hosts.Host {
	return hosts.Host{First: t.First, Ranks: t.Ranks, World: t.World}
}

// awaitSidecar returns when the next process of the sidecar serves.
func (t *topology) awaitSidecar(ctx context.Context, before int) error {
	for {
		now, err := supervisor.ReadRoles(t.dir)
		if s := sidecarOf(now); err == nil && s.Pid != before && s.State == supervisor.Running {
			return nil
		}
		if err := t.serves(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the sidecar of %s does not serve the new ranks yet: %w", t.dir, ctx.Err())
		case <-(seam.System{}).After(100 * time.Millisecond):
		}
	}
}

func sidecarOf(all []supervisor.Role) supervisor.Role {
	i := slices.IndexFunc(all, func(r supervisor.Role) bool { return r.Role == up.Sidecar })
	if i < 0 {
		return supervisor.Role{}
	}
	return all[i]
}
