package roles

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"millrace"
	"millrace/app/cluster"
	"millrace/app/exit"
	"millrace/app/rundir"
	"millrace/app/supervisor"
	"millrace/checkpoint"
	"millrace/internal/seam"
	"millrace/orchestrator"
	"millrace/orchestrator/follow"
	"millrace/orchestrator/lease"
	"millrace/proto"
)

// Planning is the settings of the orchestrator's process.
type Planning struct {
	Metrics string // address of /metrics; empty: none
	Up      string // id of the `up`, or of all of a run with several hosts
	Cluster string // path of the file of the cluster; empty: the run has one host and no etcd
	Placer  string // the engine that runs the loaders: Supervisor, Kubernetes, Ray, or empty for one that is not asked
}

// Orchestrate runs the orchestrator.
func (p Process) Orchestrate(ctx context.Context, o Planning) error {
	r, ctx, stop, err := p.start(ctx)
	if err != nil {
		return err
	}
	defer stop()
	if r.isSpread() {
		return departing(ctx, r.orchestrateSpread(ctx, o))
	}
	return departing(ctx, r.orchestrate(ctx, o))
}

// asFailure makes any error of a running role a failure of the run.
func asFailure(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, supervisor.ErrEnding) {
		return nil
	}
	return exit.Failure(err)
}

// departing marks the orchestrator's error with an exit status for the supervisor. The run continues after four
// statuses: the orchestrator was asked to leave, its disk is full, its disk failed, or it lost the lease.
func departing(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, checkpoint.ErrDiskFull):
		return exit.With(exit.NoRoom, err)
	case errors.Is(err, syscall.EIO):
		return exit.With(exit.Disk, err)
	case errors.Is(err, millrace.ErrFenced):
		return exit.With(exit.Fenced, fmt.Errorf("%s%w", frozen, err))
	case (err == nil || errors.Is(err, context.Canceled)) && errors.Is(context.Cause(ctx), supervisor.ErrStopped):
		return exit.Silent(exit.Asked)
	}
	return asFailure(err)
}

// frozen begins the lines of `up` and of `millrace status` about a lease that this host lacks.
const frozen = "frozen: no steps are planned, and ranks use the planned ones: "

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

func (r *role) orchestrate(ctx context.Context, o Planning) error {
	// The lease outlives ctx, for the last snapshots. A signal ends the wait for it.
	alive, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	granted := context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })
	for _, s := range r.streams { // of a killed process
		if err := os.Remove(rundir.Socket(s.dir, "orchestrator")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove a socket: %w", err)
		}
	}
	if err := r.choosePort(); err != nil {
		return err
	}
	if r.others != nil {
		defer r.others.Close()
	}
	grants, err := r.elect(alive, o)
	if err != nil {
		return err
	}
	var all []*planning
	defer func() {
		for _, p := range all {
			p.close()
		}
		for _, g := range grants {
			g.Release() // Run has released it, if there was one
		}
	}()
	places := &follow.Places{}
	for _, s := range r.streams {
		p, err := r.openPlanning(alive, s, o, grants[s], places)
		if err != nil {
			return s.failed(err)
		}
		all = append(all, p)
	}
	if !granted() {
		return context.Cause(ctx)
	}
	group, gctx := errgroup.WithContext(ctx)
	if err := r.run(gctx, group, all); err != nil {
		return err
	}
	if o.Metrics != "" {
		group.Go(func() error { return orchestrator.ServeMetrics(gctx, o.Metrics, all[0].Orchestrator) })
	}
	if len(all) > 1 {
		group.Go(func() error { return awaitEnd(gctx, all) })
	}
	if r.leads = true; !r.isSpread() {
		r.ready()
	}
	r.term(all[0].Term())
	if err := group.Wait(); !errors.Is(err, errDone) {
		return err
	}
	return nil
}

// run serves all streams, to this host and to others if there are any, and runs their loops. The end of a loop is the
// end of the role: nil if the run is complete or was asked to stop.
func (r *role) run(ctx context.Context, group *errgroup.Group, all []*planning) error {
	others, listener, err := r.serveOthers(all)
	if err != nil {
		return err
	}
	var loops sync.WaitGroup
	for _, p := range all {
		loops.Add(1)
		group.Go(func() error { return p.server.Serve(p.listener) })
		group.Go(func() error {
			defer stopServing(p.server)
			defer loops.Done()
			if err := p.Run(ctx); err != nil {
				return p.stream.failed(err)
			}
			return errDone
		})
	}
	if others == nil {
		return nil
	}
	group.Go(func() error { return others.Serve(listener) })
	group.Go(func() error {
		loops.Wait()
		stopServing(others)
		return nil
	})
	return nil
}

// planning is the orchestrator of one stream, with its journal and its socket.
type planning struct {
	*orchestrator.Orchestrator
	stream   *stream
	store    *checkpoint.Store
	address  string
	listener net.Listener // for this host
	served   *orchestrator.Server
	server   *grpc.Server
	etcd     io.Closer // the placer's connection; nil: it has none
}

// openPlanning opens the journal and the socket of a stream. Nothing runs yet. The caller closes it. grant is the
// stream's part of the lease; nil: the run has no cluster.
func (r *role) openPlanning(
	ctx context.Context, s *stream, o Planning, grant *lease.Grant, places *follow.Places,
) (_ *planning, err error) {
	cfg, err := OrchestratorConfig(s.of, r.World, r.Version)
	if err != nil {
		return nil, err
	}
	cfg.Log, cfg.Up, cfg.Incarnation, cfg.Host = r.log, cmp.Or(r.site.Up, o.Up), o.Up, r.site.Name
	cfg.Lasts, cfg.Further = len(r.streams) > 1, s.isFurther()
	p := &planning{stream: s, address: rundir.Socket(s.dir, "orchestrator")}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	options := orchestrator.Options{
		Lines: s.lines(os.Stderr), Events: s.events, Fail: r.fail, Fenced: r.fenced,
	}
	if cfg.Elastic != nil && !s.isFurther() { // the loaders of the run read all streams
		if options.Placer, err = r.placer(ctx, o.Placer, p); err != nil {
			return nil, err
		}
	}
	if grant != nil {
		options.Leaser = grant
	}
	if r.isSpread() {
		options.Places = places
	}
	if p.store, err = checkpoint.Open(r.journal(s)); err != nil {
		return nil, err
	}
	options.Store = p.store
	if p.Orchestrator, err = orchestrator.New(ctx, cfg, options); err != nil {
		return nil, err
	}
	if p.listener, err = (seam.SystemNet{}).Listen(p.address); err != nil {
		return nil, fmt.Errorf("listen for the other roles: %w", err)
	}
	p.served = orchestrator.NewServer(p.Orchestrator)
	p.server = grpc.NewServer(r.credentials.Server()...)
	proto.RegisterOrchestratorServer(p.server, p.served)
	return p, nil
}

// journal returns the place of a stream's journal.
func (r *role) journal(s *stream) checkpoint.Config {
	return checkpoint.Config{
		Dir: rundir.Journal(s.dir), CreatedBy: r.Version, LockWait: rundir.LockWait, Logger: r.log, Fail: r.fail,
		Fatal: die,
	}
}

// serveOthers returns the server of all streams for other hosts, and its listener; nil: there are no other hosts.
func (r *role) serveOthers(all []*planning) (*grpc.Server, net.Listener, error) {
	if !r.isSpread() {
		return nil, nil, nil
	}
	listener, err := r.others, error(nil)
	if listener == nil {
		listener, _, err = r.credentials.Listen(seam.SystemNet{}, r.network.File.Listen)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("listen for other hosts: %w: free the port, or correct `listen`", err)
	}
	streams := orchestrator.Servers{Of: map[string]*orchestrator.Server{}}
	for _, p := range all {
		streams.Of[cluster.Leader(p.stream.name)] = p.served
	}
	server := grpc.NewServer(r.credentials.Server()...)
	proto.RegisterOrchestratorServer(server, streams)
	return server, listener, nil
}

// choosePort lets the kernel choose the port for other hosts, if `listen` has none. The leader's key in etcd has the
// port, so a candidate needs it before its election. No other process knows it before that. A port of the cluster file
// is bound by the leader alone: hosts that still take this one for the leader are refused there at once.
func (r *role) choosePort() error {
	if !r.isSpread() || !r.network.File.HasNoPort() {
		return nil
	}
	listener, address, err := r.credentials.Listen(seam.SystemNet{}, r.network.File.Listen)
	if err != nil {
		return fmt.Errorf("listen for other hosts: %w: correct `listen`", err)
	}
	r.others = listener
	return r.network.File.ListenAt(address)
}

// close removes the socket, closes the journal, and leaves etcd.
func (p *planning) close() {
	if p.listener != nil {
		os.Remove(p.address)
	}
	if p.store != nil {
		p.store.Close()
	}
	if p.etcd != nil {
		p.etcd.Close()
	}
}

// A run with several streams ends when the stream `train` is consumed and no trainer has been connected for quiet: a
// trainer may evaluate after its last step. Within quiet, the trainers of a sidecar that was restarted come back.
const (
	quiet     = 2 * time.Second
	lookEvery = 50 * time.Millisecond
)

// awaitEnd returns errDone at the end of a run with several streams.
func awaitEnd(ctx context.Context, all []*planning) error {
	isOpen := func(p *planning) bool { return !p.IsOver() }
	clock := seam.System{}
	since := clock.Now()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-clock.After(lookEvery):
		}
		switch now := clock.Now(); {
		case slices.ContainsFunc(all, isOpen):
			since = now
		case now.Sub(since) >= quiet:
			return errDone
		}
	}
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
