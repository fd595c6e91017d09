package roles

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"millrace/checkpoint"
	"millrace/internal/app/exit"
	"millrace/internal/app/rundir"
	"millrace/internal/app/supervisor"
	"millrace/internal/seam"
	"millrace/internal/wire"
	"millrace/orchestrator"
	"millrace/proto"
)

// Orchestrate runs the orchestrator. metrics is the address of /metrics, empty for none. up is the id of the `up` that
// started the orchestrator.
func (p Process) Orchestrate(ctx context.Context, metrics, up string) error {
	r, ctx, stop, err := p.start(ctx)
	if err != nil {
		return err
	}
	defer stop()
	return departing(ctx, r.orchestrate(ctx, metrics, up))
}

// asFailure makes any error of a running role a failure of the run.
func asFailure(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return nil
	}
	return exit.Failure(err)
}

// departing marks the orchestrator's error with an exit status for the supervisor. Three statuses let the run go on:
// the orchestrator was asked to leave, its disk is full, or its disk failed.
func departing(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, checkpoint.ErrDiskFull):
		return exit.With(exit.NoRoom, err)
	case errors.Is(err, syscall.EIO):
		return exit.With(exit.Disk, err)
	case (err == nil || errors.Is(err, context.Canceled)) && errors.Is(context.Cause(ctx), supervisor.ErrStopped):
		return exit.Silent(exit.Asked)
	}
	return asFailure(err)
}

// die ends the process when the journal's disk fails. A damaged journal ends the run. After a failed write, only a
// fresh process can read back the disk's content.
func die(err error) {
	fmt.Fprintln(os.Stderr, err)
	switch {
	case errors.Is(err, checkpoint.ErrDiskFull):
		os.Exit(exit.NoRoom)
	case errors.Is(err, checkpoint.ErrCorrupt):
		os.Exit(exit.Failed)
	}
	os.Exit(exit.Disk)
}

func (r *role) orchestrate(ctx context.Context, metrics, up string) error {
	cfg, err := OrchestratorConfig(r.cfg, r.World, r.Version)
	if err != nil {
		return err
	}
	cfg.Log, cfg.Up = r.log, up
	store, err := checkpoint.Open(
		checkpoint.Config{Dir: rundir.Journal(r.RunDir), CreatedBy: r.Version, Logger: r.log, Fail: r.fail, Fatal: die},
	)
	if err != nil {
		return err
	}
	defer store.Close()
	o, err := orchestrator.New(
		context.WithoutCancel(ctx), cfg,
		orchestrator.Options{Store: store, Lines: os.Stderr, Events: r.events, Fail: r.fail, Fenced: r.fenced},
	)
	if err != nil {
		return err
	}
	address := rundir.Socket(r.RunDir, "orchestrator")
	listener, err := seam.UnixNet{}.Listen(address)
	if err != nil {
		return fmt.Errorf("listen for the other roles: %w", err)
	}
	defer os.Remove(address)
	server := grpc.NewServer(grpc.MaxRecvMsgSize(wire.MaxMessage))
	proto.RegisterOrchestratorServer(server, orchestrator.NewServer(o))
	group, gctx := errgroup.WithContext(ctx)
	group.Go(func() error { return server.Serve(listener) })
	if metrics != "" {
		group.Go(func() error { return orchestrator.ServeMetrics(gctx, metrics, o) })
	}
	// The loop's end is the role's end: nil if the run is complete or was asked to stop.
	group.Go(func() error {
		defer stopServing(server)
		if err := o.Run(gctx); err != nil {
			return err
		}
		return errDone
	})
	r.ready()
	r.term(o.Term())
	if err := group.Wait(); !errors.Is(err, errDone) {
		return err
	}
	return nil
}

// stopServing delivers the last replies to the other roles, but does not wait for a role that does not read.
func stopServing(server *grpc.Server) {
	late := time.AfterFunc(lastWords, server.Stop)
	defer late.Stop()
	server.GracefulStop()
}

// lastWords bounds the wait for the last replies.
const lastWords = 500 * time.Millisecond

// errDone ends the orchestrator's group without a fault.
var errDone = errors.New("done")
