package roles

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
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
	"millrace/checkpoint"
	"millrace/internal/app/exit"
	"millrace/internal/app/rundir"
	"millrace/internal/app/setup"
	"millrace/internal/app/supervisor"
	"millrace/internal/seam"
	"millrace/internal/secure"
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

// departing marks the orchestrator's error with an exit status for the supervisor. Four statuses let the run go on:
// the orchestrator was asked to leave, its disk is full, its disk failed, or it lost the lease.
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
	var all []*planning
	defer func() {
		for _, p := range all {
			p.close()
		}
	}()
	for _, s := range r.streams {
		p, err := r.openPlanning(ctx, s, o)
		if err != nil {
			return s.failed(err)
		}
		all = append(all, p)
	}
	group, gctx := errgroup.WithContext(ctx)
	for _, p := range all {
		for _, l := range p.listeners {
			group.Go(func() error { return p.server.Serve(l) })
		}
		// The loop's end is the role's end: nil if the run is complete or was asked to stop.
		group.Go(func() error {
			defer stopServing(p.server)
			if err := p.Run(gctx); err != nil {
				return p.stream.failed(err)
			}
			return errDone
		})
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

// planning is the orchestrator of one stream, with its journal and its socket.
type planning struct {
	*orchestrator.Orchestrator
	stream    *stream
	grant     *lease.Grant // nil: the run has no cluster
	store     *checkpoint.Store
	address   string
	listeners []net.Listener // for this host, and for others
	server    *grpc.Server
}

// openPlanning opens the journal and the socket of a stream. Nothing runs yet. The caller closes it.
func (r *role) openPlanning(ctx context.Context, s *stream, o Planning) (_ *planning, err error) {
	cfg, err := OrchestratorConfig(s.cfg, setup.Fleet{Ranks: r.Ranks, World: r.World}, r.Version)
	if err != nil {
		return nil, err
	}
	cfg.Log, cfg.Up, cfg.Incarnation, cfg.Host = r.log, cmp.Or(r.site.Up, o.Up), o.Up, r.site.Name
	cfg.Lasts, cfg.Further, cfg.Copied = len(r.streams) > 1, s.isFurther(), r.isSpread()
	p := &planning{stream: s, address: rundir.Socket(s.dir, "orchestrator")}
	if err := os.Remove(p.address); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a killed process
		return nil, fmt.Errorf("remove a socket: %w", err)
	}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	options := orchestrator.Options{
		Lines: s.lines(os.Stderr), Events: s.events, Fail: r.fail, Fenced: r.fenced,
	}
	// The lease outlives ctx, for the last snapshot. A signal ends the wait for it.
	alive, end := context.WithCancelCause(context.WithoutCancel(ctx))
	granted := context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })
	journal := checkpoint.Config{
		Dir: rundir.Journal(s.dir), CreatedBy: r.Version, LockWait: rundir.LockWait, Logger: r.log, Fail: r.fail,
		Fatal: die,
	}
	if o.Cluster != "" { // until this process is elected, its journal may be a copy that is written
		if p.grant, err = r.elect(alive, s, o, journal); err != nil {
			return nil, err
		}
		options.Leaser = p.grant
	}
	if p.store, err = checkpoint.Open(journal); err != nil {
		return nil, err
	}
	options.Store = p.store
	p.Orchestrator, err = orchestrator.New(alive, cfg, options)
	if !granted() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	if err := p.listen(r.surroundings); err != nil {
		return nil, err
	}
	p.server = grpc.NewServer(r.credentials.Server()...)
	proto.RegisterOrchestratorServer(p.server, orchestrator.NewServer(p.Orchestrator))
	return p, nil
}

// listen listens for the roles of this host, and of other hosts if there are any.
func (p *planning) listen(at *surroundings) error {
	own, err := (seam.SystemNet{}).Listen(p.address)
	if err != nil {
		return fmt.Errorf("listen for the other roles: %w", err)
	}
	p.listeners = append(p.listeners, own)
	if !at.isSpread() {
		return nil
	}
	others, _, err := at.credentials.Listen(seam.SystemNet{}, at.network.File.Listen)
	if err != nil {
		return fmt.Errorf("listen for other hosts: %w", err)
	}
	p.listeners = append(p.listeners, others)
	return nil
}

// elect waits for the lease of a stream in the run's cluster. While the lease keeps the stream from being planned, the
// reason is a line of `up` and of `millrace status`.
func (r *role) elect(ctx context.Context, s *stream, o Planning, journal checkpoint.Config) (*lease.Grant, error) {
	c, err := r.etcd(o, s.name)
	if err != nil {
		return nil, err
	}
	candidate := follow.New(follow.Config{Journal: journal, Version: speaks(r.Version), Host: c.Host,
		Identity: rand.Text(), Log: r.log})
	c.Journal = candidate
	lines, last := s.lines(os.Stderr), ""
	var mu sync.Mutex
	c.Frozen = func(why string) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case why != "":
			why = frozen + why
			fmt.Fprintln(lines, "warning: "+why)
		case last != "":
			fmt.Fprintln(lines, "over: "+last)
		}
		last = why
		r.lacks(why)
	}
	e, err := lease.NewEtcd(c)
	if err != nil {
		return nil, err
	}
	if !r.isSpread() {
		return candidate.Elect(ctx, e, nil)
	}
	return candidate.Elect(ctx, e, func(context.Context) (*grpc.ClientConn, error) {
		return grpc.NewClient(secure.Target, r.credentials.Client(r.net(), r.orchestrator(s), secure.Orchestrator)...)
	})
}

// close removes the socket and closes the journal.
func (p *planning) close() {
	if p.listeners != nil {
		os.Remove(p.address)
	}
	if p.store != nil {
		p.store.Close()
	}
	if p.grant != nil {
		p.grant.Release() // Run has released it, if there was one
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
