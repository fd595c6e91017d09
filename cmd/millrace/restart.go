package main

import (
	"bufio"
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
	"millrace/internal/app/config"
	"millrace/internal/app/exit"
	"millrace/internal/app/report"
	"millrace/internal/app/reshape"
	"millrace/internal/app/roles"
	"millrace/internal/app/rundir"
	"millrace/internal/app/setup"
	"millrace/internal/app/supervisor"
	"millrace/internal/seam"
	"millrace/orchestrator/lease/hosts"
	"millrace/proto"
)

// restart is one rolling restart.
type restart struct {
	dir     string
	names   []string // empty: every role
	json    bool
	timeout time.Duration // for one role
}

// restarted is the result for a replaced role.
type restarted struct {
	Role    string  `json:"role"`
	Name    string  `json:"name"`
	Was     int     `json:"was"` // pid
	Pid     int     `json:"pid"`
	Seconds float64 `json:"seconds"`
}

func restartCommand() *cobra.Command {
	r := &restart{}
	c := &cobra.Command{
		Use:   "restart DIR [NAME...]",
		Short: "Replace the processes of a run one after the other, while it goes on",
		Long: `Replace the processes of the run in DIR one after the other, while it goes on.

Each process is asked to leave and hands over its work. The next one is asked when the successor runs and every loader
has a shadow again (if there are shadows). Without names, the order is shadows, loaders, sidecar, orchestrator.
restart does not start a program that was replaced on disk: that needs a new up.`,
		Example: "  millrace restart runs/a\n  millrace restart runs/a loader-1 orchestrator",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return exactArgs(1, "one run directory and names of roles")(c, args)
			}
			r.dir, r.names = args[0], args[1:]
			return r.run(c)
		},
	}
	c.Flags().BoolVar(&r.json, "json", false, "print one JSON object a role")
	c.Flags().DurationVar(&r.timeout, "timeout", time.Minute, "time limit for one role; then restart stops")
	return c
}

func (r *restart) run(c *cobra.Command) error {
	ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	roles, running, err := rundir.Roles(r.dir)
	if err != nil {
		return exit.Failure(err)
	}
	if !running {
		return exit.Failuref("no `millrace up` runs on %s: there is nothing to restart", r.dir)
	}
	if reply, err := rundir.AskStatus(ctx, r.dir); err == nil {
		report.Acting(roles, reply)
	}
	queue, err := r.queue(roles)
	if err != nil {
		return err
	}
	return page(c, func(w *bufio.Writer) error {
		for i, name := range queue {
			fmt.Fprintf(c.ErrOrStderr(), "%d of %d: %s\n", i+1, len(queue), name)
			done, err := r.exchange(ctx, name)
			if err != nil {
				return exit.Failuref("restart %s: %v", name, err)
			}
			if r.json {
				err = report.Encode(w, done)
			} else {
				_, err = fmt.Fprintf(w, "%s %s: process %d, was %d, after %.1f s\n", done.Role, done.Name, done.Pid,
					done.Was, done.Seconds)
			}
			if err := errors.Join(err, w.Flush()); err != nil {
				return err
			}
		}
		return nil
	})
}

// queue returns the names of the roles to restart: standbys first, then the processes that they protect, and the
// orchestrator last.
func (r *restart) queue(roles []supervisor.Role) ([]string, error) {
	order := []string{"shadow", "loader", "constructor", "sidecar", "orchestrator"}
	var all []string
	for _, kind := range order {
		for _, role := range roles {
			if role.Role == kind {
				all = append(all, role.Name)
			}
		}
	}
	if len(r.names) == 0 {
		return all, nil
	}
	for _, name := range r.names {
		if !slices.Contains(all, name) {
			return nil, exit.Usagef(
				"millrace restart: %s has no role %q: its roles are %s", r.dir, name, strings.Join(all, ", "),
			)
		}
	}
	return r.names, nil
}

// exchange asks one role to leave and waits for its successor.
func (r *restart) exchange(ctx context.Context, name string) (*restarted, error) {
	clock := seam.System{}
	start := clock.Now()
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	before, err := r.await(
		ctx, name, func(role supervisor.Role) bool { return role.State == supervisor.Running && role.Pid != 0 },
	)
	if err != nil {
		return nil, err
	}
	if err := syscall.Kill(before.Pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return nil, fmt.Errorf("ask process %d to leave: %w", before.Pid, err)
	}
	after, err := r.await(
		ctx, name,
		func(role supervisor.Role) bool { return role.State == supervisor.Running && role.Pid != before.Pid },
	)
	if err != nil {
		return nil, err
	}
	if err := r.settled(ctx); err != nil {
		return nil, err
	}
	return &restarted{
		Role:    after.Role,
		Name:    name,
		Was:     before.Pid,
		Pid:     after.Pid,
		Seconds: clock.Now().Sub(start).Seconds(),
	}, nil
}

// lookEvery is the pause between two looks at the run.
const lookEvery = 20 * time.Millisecond

// await waits until a role has the wanted state.
func (r *restart) await(ctx context.Context, name string, wanted func(supervisor.Role) bool) (supervisor.Role, error) {
	for {
		roles, running, err := rundir.Roles(r.dir)
		if err != nil {
			return supervisor.Role{}, err
		}
		if !running {
			return supervisor.Role{}, errors.New("the run has ended")
		}
		for _, role := range roles {
			if role.Name == name && wanted(role) {
				return role, nil
			}
		}
		if err := pause(ctx); err != nil {
			return supervisor.Role{}, fmt.Errorf("%w: see `millrace status %s`", err, r.dir)
		}
	}
}

// settled waits until every role is connected to the orchestrator and every stripe that had a standby has one again.
func (r *restart) settled(ctx context.Context) error {
	for {
		missing := "the orchestrator does not answer"
		roles, running, err := rundir.Roles(r.dir)
		if err != nil {
			return err
		}
		if !running {
			return errors.New("the run has ended")
		}
		if reply, err := rundir.AskStatus(ctx, r.dir); err == nil {
			if missing = unsettled(roles, reply); missing == "" {
				return nil
			}
		}
		if err := pause(ctx); err != nil {
			return fmt.Errorf("%w: %s; see `millrace status %s`", err, missing, r.dir)
		}
	}
}

// unsettled names the first role or stripe that is not ready, or nothing. Of several hosts, the orchestrator of one
// answers; those of the others stand by.
func unsettled(roles []supervisor.Role, reply *proto.StatusReply) string {
	shadows := false
	for _, role := range roles {
		shadows = shadows || role.Role == "shadow"
		if role.Role == "orchestrator" && isSpread(reply) {
			continue
		}
		if !slices.ContainsFunc(
			reply.Roles,
			func(known *proto.RoleStatus) bool { return known.Name == role.Name && known.Pid == int64(role.Pid) },
		) {
			return role.Name + " is not connected to the orchestrator yet"
		}
	}
	for _, p := range reply.Stripes {
		if shadows && p.Standby == nil {
			return fmt.Sprintf("source %s is not protected by a shadow yet", p.Source)
		}
	}
	return ""
}

// isSpread reports whether the run has several hosts.
func isSpread(reply *proto.StatusReply) bool {
	return slices.ContainsFunc(reply.Roles, func(r *proto.RoleStatus) bool {
		return r.Role == "orchestrator" && r.Host != ""
	})
}

func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return errors.New("it took too long")
		}
		return errors.New("interrupted")
	case <-seam.System{}.After(lookEvery):
		return nil
	}
}

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
trainer of the old topology is connected. Only the sidecar starts again: it makes the sockets of the new ranks.`,
		Example: "  millrace topology runs/a --ranks 4\n" +
			"  millrace topology runs/a --ranks 8 --first-rank 8 --world-size 16 --tp 2",
		Args: exactArgs(1, "one run directory"),
		RunE: func(c *cobra.Command, args []string) error {
			t.dir = args[0]
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
	if !running {
		return exit.Failuref("no `millrace up` runs on %s: give the ranks to `millrace up` itself", t.dir)
	}
	if err := reshape.Ask(ctx, seam.System{}, t.dir, t.Request); err != nil {
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
		if err := awaitTrainers(ctx, u.runDir, now, r.Patience); err != nil {
			return err
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
func awaitTrainers(ctx context.Context, runDir string, now reshape.Request, patience time.Duration) error {
	clock := seam.System{}
	for until := clock.Now().Add(patience); ; {
		err := refuseTrainers(ctx, runDir, now)
		if err == nil || clock.Now().After(until) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-clock.After(100 * time.Millisecond):
		}
	}
}

// refuseTrainers returns an error while trainers of this host's ranks are connected: they would get an error.
func refuseTrainers(ctx context.Context, runDir string, now reshape.Request) error {
	reply, err := rundir.AskStatus(ctx, runDir)
	if err != nil {
		return fmt.Errorf("ask which trainers are connected: %w", err)
	}
	var here []string
	for _, rank := range reply.Here {
		if i := int(rank) - now.First; int(reply.World) == now.World && i >= 0 && i < now.Ranks {
			here = append(here, strconv.Itoa(int(rank)))
		}
	}
	if len(here) > 0 {
		return fmt.Errorf("rank %s of this host is connected: let the trainers leave at a step's end first",
			strings.Join(here, ", "))
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
	return u.here.Reshape(ctx, r.First, r.Ranks, r.World, fmt.Sprintf("%d %d %d", r.TP, r.CP, r.PP))
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
