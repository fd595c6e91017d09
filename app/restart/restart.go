// Package restart replaces the processes of a run one after the other, without stopping the run.
package restart

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"time"

	"millrace/app/exit"
	"millrace/app/report"
	"millrace/app/rundir"
	"millrace/app/supervisor"
	"millrace/internal/seam"
	"millrace/proto"
)

// Restart is one rolling restart.
type Restart struct {
	Dir     string
	Names   []string      // empty: every role
	Timeout time.Duration // for one role
}

// Done is the result for a replaced role. Scripts read its JSON names.
type Done struct {
	Role    string  `json:"role"`
	Name    string  `json:"name"`
	Was     int     `json:"was"` // pid
	Pid     int     `json:"pid"`
	Seconds float64 `json:"seconds"`
}

// Print prints the result for people.
func (d *Done) Print(w io.Writer) error {
	_, err := fmt.Fprintf(w, "%s %s: process %d, was %d, after %.1f s\n", d.Role, d.Name, d.Pid, d.Was, d.Seconds)
	return err
}

// Run replaces the roles one after the other, until ctx ends. It calls begin before a role, and each with its result.
func (r *Restart) Run(
	ctx context.Context, begin func(at, of int, name string), each func(*Done) error,
) error {
	names, err := r.list(ctx)
	if err != nil {
		return err
	}
	for i, name := range names {
		begin(i+1, len(names), name)
		done, err := r.exchange(ctx, name)
		if err != nil {
			return exit.Failuref("restart %s: %v", name, err)
		}
		if err := each(done); err != nil {
			return err
		}
	}
	return nil
}

// list returns the names of the roles to restart, in order.
func (r *Restart) list(ctx context.Context) ([]string, error) {
	if err := rundir.Check(r.Dir); err != nil {
		return nil, err
	}
	roles, running, err := rundir.Roles(r.Dir)
	if err != nil {
		return nil, exit.Failure(err)
	}
	if !running {
		return nil, exit.Failuref("no `millrace up` runs on %s: there is nothing to restart", r.Dir)
	}
	if reply, err := rundir.AskStatus(ctx, r.Dir); err == nil {
		report.Acting(roles, reply)
	}
	return r.queue(roles)
}

// queue returns the names of the roles to restart: standbys first, then the processes that they protect, and the
// orchestrator last.
func (r *Restart) queue(roles []supervisor.Role) ([]string, error) {
	order := []string{"shadow", "loader", "constructor", "sidecar", "orchestrator"}
	var all []string
	for _, kind := range order {
		for _, role := range roles {
			if role.Role == kind {
				all = append(all, role.Name)
			}
		}
	}
	if len(r.Names) == 0 {
		return all, nil
	}
	for _, name := range r.Names {
		if !slices.Contains(all, name) {
			return nil, exit.Usagef(
				"millrace restart: %s has no role %q: its roles are %s", r.Dir, name, strings.Join(all, ", "),
			)
		}
	}
	return r.Names, nil
}

// exchange asks one role to leave and waits for its successor.
func (r *Restart) exchange(ctx context.Context, name string) (*Done, error) {
	clock := seam.System{}
	start := clock.Now()
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
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
	return &Done{
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
func (r *Restart) await(ctx context.Context, name string, wanted func(supervisor.Role) bool) (supervisor.Role, error) {
	for {
		roles, running, err := rundir.Roles(r.Dir)
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
			return supervisor.Role{}, fmt.Errorf("%w: see `millrace status %s`", err, r.Dir)
		}
	}
}

// settled waits until every role is connected to the orchestrator and every stripe that had a standby has one again.
func (r *Restart) settled(ctx context.Context) error {
	for {
		missing := "the orchestrator does not answer"
		roles, running, err := rundir.Roles(r.Dir)
		if err != nil {
			return err
		}
		if !running {
			return errors.New("the run has ended")
		}
		if reply, err := rundir.AskStatus(ctx, r.Dir); err == nil {
			if missing = unsettled(roles, reply); missing == "" {
				return nil
			}
		}
		if err := pause(ctx); err != nil {
			return fmt.Errorf("%w: %s; see `millrace status %s`", err, missing, r.Dir)
		}
	}
}

// unsettled names the first role or stripe that is not ready; "": all are. Of several hosts, the orchestrator of one
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
