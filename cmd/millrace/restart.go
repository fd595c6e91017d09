package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"millrace/app/exit"
	"millrace/app/report"
	"millrace/app/rundir"
	"millrace/app/supervisor"
	"millrace/internal/seam"
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
		Use:   "restart DIR [NAME…]",
		Short: "Replace the processes of a run one after the other, while it goes on",
		Long: `Replace the processes of the run in DIR one after the other, while it goes on.

Each process is asked to leave and hands over its work. The next one is asked when the successor runs and every loader
has a shadow again (if there are shadows). Without names, the order is shadows, loaders, sidecar, orchestrator.
restart does not start a program that was replaced on disk: that needs a new up.`,
		Example: "  millrace restart runs/a\n  millrace restart runs/a loader-1 orchestrator",
		Args:    leastArgs(1, "one run directory, and names of roles"),
		RunE: func(c *cobra.Command, args []string) error {
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
// answers; those of the others stand by. While files of a source cannot be read, standbys cannot become ready.
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
		if shadows && p.Standby == nil && !isUnreadable(reply) {
			return fmt.Sprintf("source %s is not protected by a shadow yet", p.Source)
		}
	}
	return ""
}

// isUnreadable reports whether files of some source cannot be read for now.
func isUnreadable(reply *proto.StatusReply) bool {
	return slices.ContainsFunc(reply.Alerts, func(a *proto.Alert) bool { return a.Kind == "source" })
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
