package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"millrace"
	"millrace/app/config"
	"millrace/app/exit"
	"millrace/app/report"
	"millrace/app/reshape"
	"millrace/app/roles"
	"millrace/app/rundir"
	"millrace/app/setup"
	"millrace/app/supervisor"
	"millrace/internal/seam"
	"millrace/orchestrator/lease"
	"millrace/orchestrator/lease/hosts"
)

// topology is the flags of `millrace topology`.
type topology struct {
	reshape.Request
	dir  string
	json bool
}

// applyWithin is the time limit for etcd and for the start of a sidecar, agreeWithin that for etcd alone.
const (
	applyWithin = time.Minute
	agreeWithin = 6 * time.Second
)

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
	i := slices.IndexFunc(all, func(r supervisor.Role) bool { return r.Role == sidecarRole })
	if i < 0 {
		return supervisor.Role{}
	}
	return all[i]
}

// reshapes serves requests for other ranks of this host until ctx ends. The sidecars with the new ranks go to next.
func (u *up) reshapes(ctx context.Context, cfg *config.Config, next chan<- supervisor.Child) {
	now := reshape.Request{First: u.first, Ranks: u.ranks, World: u.world}
	reshape.Serve(ctx, seam.System{}, u.runDir, func(r reshape.Request) error {
		if err := awaitTrainers(ctx, u.runDir, now, r, cfg); err != nil {
			return u.orEtcd(ctx, err)
		}
		if err := u.reshape(ctx, cfg, r); err != nil {
			return err
		}
		now = r
		of := *u // this host keeps the names of its processes
		of.serving.ranks, of.serving.first, of.world = r.Ranks, r.First, r.World
		args := append(of.args(), "--tp", strconv.Itoa(r.TP), "--cp", strconv.Itoa(r.CP), "--pp", strconv.Itoa(r.PP))
		select {
		case next <- of.child(sidecarRole, u.place().Sidecar(), args...):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// awaitTrainers returns when no trainer of this host's ranks is connected, or why the ranks cannot change.
func awaitTrainers(ctx context.Context, runDir string, now, next reshape.Request, cfg *config.Config) error {
	clock := seam.System{}
	for until := clock.Now().Add(next.Patience); ; {
		var err error
		for name, stream := range cfg.All() {
			if err = refuseTrainers(ctx, runDir, name, stream, now); err != nil {
				break
			}
		}
		switch {
		case !reshape.IsWanted(runDir, next):
			return errors.New("the command that asked for other ranks has ended")
		case err == nil || clock.Now().After(until):
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-clock.After(100 * time.Millisecond):
		}
	}
}

// refuseTrainers returns an error while trainers of this host's ranks take a stream: they would get an error. now is
// the topology of the run.
func refuseTrainers(
	ctx context.Context, runDir, stream string, cfg *config.Config, now reshape.Request,
) error {
	of := ""
	if stream != string(millrace.Train) {
		of = " to stream " + stream
	}
	reply, err := rundir.AskStatus(ctx, supervisor.StreamDir(runDir, stream))
	if err != nil {
		return fmt.Errorf("ask which trainers are connected%s: %w", of, err)
	}
	var here []string
	for _, rank := range reply.Here {
		if i := int(rank) - now.First; int(reply.World) == cfg.Served(now.World) && i >= 0 && i < now.Ranks {
			here = append(here, strconv.Itoa(int(rank)))
		}
	}
	if len(here) > 0 {
		return fmt.Errorf("rank %s of this host is connected%s: let the trainers leave at a step's end first",
			strings.Join(here, ", "), of)
	}
	return nil
}

// reshape agrees on other ranks with the other hosts, or refuses them.
func (u *up) reshape(ctx context.Context, cfg *config.Config, r reshape.Request) error {
	switch {
	case !u.runs(sidecarRole):
		return fmt.Errorf("%s serves no ranks: call this for the hosts that do", u.command())
	case u.here == nil && (r.First != 0 || r.World != r.Ranks):
		return fmt.Errorf("the run has one host, which serves all ranks: leave --first-rank and --world-size out, or " +
			"start the run with --cluster")
	}
	for name, stream := range cfg.All() {
		other, err := stream.Reshaped(roles.Reshaped(stream, r.World, r.TP, r.CP, r.PP))
		if err == nil {
			_, err = roles.OrchestratorConfig(other, r.World, programVersion())
		}
		if err == nil {
			err = setup.CheckSidecarMemory(other, r.Ranks)
		}
		if err != nil && name != string(millrace.Train) {
			err = fmt.Errorf("stream %s: %w", name, err)
		}
		if err != nil {
			return err
		}
	}
	if u.here == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, agreeWithin)
	defer cancel()
	return asAway(u.here.Reshape(ctx, r.First, r.Ranks, r.World, fmt.Sprintf("%d %d %d", r.TP, r.CP, r.PP)))
}

// orEtcd returns an error, or the reason for it: that etcd does not answer.
func (u *up) orEtcd(ctx context.Context, err error) error {
	if u.here == nil {
		return err
	}
	_, away := u.here.List(ctx)
	return cmp.Or(asAway(away), err)
}

// asAway returns an error of etcd with the cure.
func asAway(err error) error {
	if err == nil || lease.IsFinal(err) {
		return err
	}
	return fmt.Errorf("agree with the other hosts in etcd: %s: call this again when etcd answers", lease.Reason(err))
}

// takeAxes gives the configuration the axes of parallelism that the other hosts have.
func takeAxes(cfg *config.Config, axes string) error {
	var tp, cp, pp uint32
	if axes == "" {
		return nil
	}
	if _, err := fmt.Sscan(axes, &tp, &cp, &pp); err != nil {
		return fmt.Errorf("read the axes %q of another host: %w", axes, err)
	}
	for _, stream := range cfg.All() {
		p := &stream.Parallelism
		p.TP, p.CP, p.PP = cmp.Or(tp, p.TP), cmp.Or(cp, p.CP), cmp.Or(pp, p.PP)
	}
	return nil
}
