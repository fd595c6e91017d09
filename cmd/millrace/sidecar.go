package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"millrace"
	"millrace/internal/app/setup"
	"millrace/internal/app/supervisor"
	"millrace/internal/event"
	"millrace/internal/heartbeat"
	"millrace/internal/seam"
	"millrace/sidecar"
	"millrace/sidecar/link"
)

func sidecarCommand() *cobra.Command {
	r := &role{}
	var first int
	c := &cobra.Command{Use: "sidecar", Short: "Serve the ranks of this host (started by up)"}
	roleFlags(c, r)
	c.Flags().IntVar(&first, "first-rank", 0, "the run's rank behind rank-0.sock")
	c.RunE = func(c *cobra.Command, _ []string) error {
		ctx, stop, err := r.start(c.Context())
		if err != nil {
			return err
		}
		defer stop()
		return asFailure(r.serve(ctx, first))
	}
	return c
}

func (r *role) serve(ctx context.Context, first int) error {
	memory := int64(r.cfg.Limits.SidecarMemory)
	memoryLimit(memory)
	topology, err := r.cfg.Topology(r.world)
	if err != nil {
		return err
	}
	shapes := r.cfg.Shapes()
	perRank := memory / 2 / int64(r.ranks)
	if err := setup.CheckSidecarMemory(r.cfg, r.ranks); err != nil {
		return err
	}
	up := link.New(link.Config{Name: r.name, Orchestrator: socket(r.runDir, "orchestrator"), Shapes: shapes, PadMultiple: r.cfg.PadMultiple,
		Topology: topology, Broadcast: setup.Broadcast(r.cfg), Ranks: r.ranks, Net: seam.UnixNet{}, Clock: seam.System{}, Fail: r.fail, Events: r.events, Log: r.log, Term: r.term,
		Pages: heartbeat.Files{}, Dump: r.runDir, Version: speaks()})
	ranks := make([]millrace.Rank, r.ranks)
	for i := range ranks {
		ranks[i] = millrace.Rank(first + i)
	}
	server, err := sidecar.New(sidecar.Config{Dir: r.runDir, Ranks: ranks, Upstream: up, Fetcher: up, RingSize: perRank, Ready: r.ready, Observe: r.observe, Log: r.log})
	if err != nil {
		return err
	}
	group, gctx := errgroup.WithContext(ctx)
	// The link outlives the server, which still carries what its trainers have committed.
	linked, unlink := context.WithCancel(context.WithoutCancel(ctx))
	defer unlink()
	group.Go(func() error { return up.Run(linked) })
	group.Go(func() error {
		defer unlink()
		return server.Run(r.reasoned(gctx))
	})
	return group.Wait()
}

// reasoned gives the trainers the reason of a failed run when the sidecar is asked to leave.
func (r *role) reasoned(ctx context.Context) context.Context {
	out, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() {
		if reason := supervisor.Reason(r.runDir); reason != "" {
			cancel(&sidecar.RunError{Reason: reason})
			return
		}
		if errors.Is(context.Cause(ctx), supervisor.ErrOrphaned) {
			cancel(sidecar.ErrAlone)
			return
		}
		cancel(context.Cause(ctx))
	})
	return out
}

// observe writes a rank's events and passes the failpoints at them.
func (r *role) observe(e sidecar.Event) {
	r.events.Write(event.Record{Event: string(e.Kind), Stream: string(millrace.Train), Attempt: uint32(e.Slot.Attempt), Step: int64(e.Slot.Step),
		Rank: int(e.Slot.Rank), Micro: int(e.Slot.Microbatch), Key: e.Reason})
	r.fail.Hit("sidecar/" + string(e.Kind))
}
