package up

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"millrace"
	"millrace/app/config"
	"millrace/app/reshape"
	"millrace/app/roles"
	"millrace/app/rundir"
	"millrace/app/setup"
	"millrace/app/supervisor"
	"millrace/internal/seam"
	"millrace/orchestrator/lease"
)

// agreeWithin is the time limit for etcd.
const agreeWithin = 6 * time.Second

// reshapes serves requests for other ranks of this host until ctx ends. The sidecars with the new ranks go to next.
func (u *Up) reshapes(ctx context.Context, cfg *config.Config, next chan<- supervisor.Child) {
	now := reshape.Request{First: u.First, Ranks: u.Ranks, World: u.World}
	reshape.Serve(ctx, seam.System{}, u.RunDir, func(r reshape.Request) error {
		if err := awaitTrainers(ctx, u.RunDir, now, r, cfg); err != nil {
			return u.orEtcd(ctx, err)
		}
		if err := u.reshape(ctx, cfg, r); err != nil {
			return err
		}
		now = r
		of := *u // this host keeps the names of its processes
		of.Ranks, of.First, of.World = r.Ranks, r.First, r.World
		args := append(of.Args(), "--tp", strconv.Itoa(r.TP), "--cp", strconv.Itoa(r.CP), "--pp", strconv.Itoa(r.PP))
		select {
		case next <- of.child(roles.SidecarRole, u.place().Sidecar(), args...):
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
func (u *Up) reshape(ctx context.Context, cfg *config.Config, r reshape.Request) error {
	switch {
	case !u.runs(roles.SidecarRole):
		return fmt.Errorf("%s serves no ranks: call this for the hosts that do", u.command())
	case u.here == nil && (r.First != 0 || r.World != r.Ranks):
		return fmt.Errorf("the run has one host, which serves all ranks: leave --first-rank and --world-size out, or " +
			"start the run with --cluster")
	}
	for name, stream := range cfg.All() {
		other, err := stream.Reshaped(roles.Reshaped(stream, r.World, r.TP, r.CP, r.PP))
		if err == nil {
			of := u.streams[name]
			of.Config = other
			_, err = roles.OrchestratorConfig(&of, r.World, u.Version)
		}
		if err == nil {
			err = setup.CheckSidecarMemory(other, u.streams[name].Part, r.Ranks)
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
func (u *Up) orEtcd(ctx context.Context, err error) error {
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

// withAxes returns the configuration with the axes of parallelism that the other hosts have.
func withAxes(cfg *config.Config, axes string) (*config.Config, error) {
	var tp, cp, pp uint32
	if axes == "" {
		return cfg, nil
	}
	if _, err := fmt.Sscan(axes, &tp, &cp, &pp); err != nil {
		return nil, fmt.Errorf("read the axes %q of another host: %w", axes, err)
	}
	return cfg.WithAxes(tp, cp, pp), nil
}
