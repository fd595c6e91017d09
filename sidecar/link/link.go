// Package link connects a sidecar to the other roles: to the orchestrator, which sends plans and takes commits, and to
// the loaders, which send tokens. It hides their restarts: calls wait, and [Link.Waiting] has the reason.
//
// Each concern is a type with its own state and lock. [Link] passes the orchestrator's orders to these types:
//
//   - uplink sends events to the orchestrator.
//   - progress holds plans and the positions of ranks.
//   - directory and connections have the loaders; watch judges their heartbeats.
//   - masks and alerts hold the masks and alerts of the run.
//   - waits holds the reasons of delays.
//   - suppliers fetch the tokens of steps from loaders. A gathering does it for one step, as retrieve decides.
//   - tier.Tier lets one of the hosts that need the same tokens fetch them for all.
package link

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"millrace"
	"millrace/constructors"
	"millrace/internal/activity"
	"millrace/internal/arena"
	"millrace/internal/event"
	"millrace/internal/failpoint"
	"millrace/internal/heartbeat"
	"millrace/internal/seam"
	"millrace/internal/secure"
	"millrace/internal/wire"
	"millrace/proto"
	"millrace/sidecar"
	"millrace/sidecar/gauge"
	"millrace/sidecar/link/watch"
	"millrace/sidecar/tier"
)

// Config describes a sidecar and its surroundings.
type Config struct {
	Name         string
	Orchestrator string           // address
	Host         string           // name of the host; empty: the run has one
	Up           string           // random id of this `millrace up`; empty: the run has one
	Remote       string           // serves the sidecars of other hosts; port 0: any; empty: it does not
	Version      *proto.Version   // of this program
	Shapes       []millrace.Shape // of the stages, in their order
	PadMultiple  uint32
	Topology     millrace.Topology
	Broadcast    millrace.Broadcast
	Ranks        []millrace.Rank // of the world, that this host serves
	Untrained    bool            // some tokens may be left out of the loss
	Fields       bool            // some segments have passed-through fields
	Net          seam.Net
	Credentials  *secure.Credentials // for other hosts; nil: all roles are on this host
	Arenas       arena.Space         // for tokens from loaders of this host; nil: their replies carry them
	ArenaMemory  int64               // bytes of arenas, at most
	Files        Files               // of this host, for rows that they hold as plain ids; nil: loaders send all rows
	Clock        seam.Clock
	Fail         *failpoint.Set
	Events       *event.Log
	Log          *slog.Logger
	Term         func(millrace.Term) // called with each new term of the orchestrator
	Meter        *activity.Meter     // of this process; nil: no reports
	Gauge        *gauge.Ranks        // of this host; not nil if Meter is not
	// of this host's loaders; nil: only the end of a stream shows that a loader is dead
	Pages heartbeat.Pages
	// directory for files with different tokens of two loaders for one segment; empty: no files
	Dump string
}

// Link implements sidecar.Upstream and sidecar.Fetcher. Run keeps it connected. Calls wait while it is not connected.
type Link struct {
	cfg      Config
	identity string // random: no other process has it
	born     int64  // start of this process in nanoseconds since the boot of its host
	up       *uplink
	conns    *connections
	watch    *watch.Watcher
	waits    *waits
	masks    *masks
	alerts   *alerts
	dir      *directory
	progress *progress
	fetcher  *suppliers
	peers    *connections
	tier     *tier.Tier
	remote   string // the address of Config.Remote for diallers; Run sets it before it dials the orchestrator
}

// New returns a link that is not connected before Run.
func New(cfg Config) *Link {
	l := &Link{cfg: cfg, identity: rand.Text(), born: cfg.Clock.Boottime()}
	l.up = newUplink(cfg.Events)
	l.conns = &connections{net: cfg.Net, credentials: cfg.Credentials, orchestrator: cfg.Orchestrator,
		others: secure.Loader, byAddress: map[string]*grpc.ClientConn{}}
	l.peers = &connections{net: cfg.Net, credentials: cfg.Credentials, others: secure.Sidecar,
		byAddress: map[string]*grpc.ClientConn{}}
	l.watch = watch.New(watch.Config{Pages: cfg.Pages, Dial: l.conns.dial, Clock: cfg.Clock, Log: cfg.Log})
	l.waits = &waits{clock: cfg.Clock, doubt: make(chan struct{}, 1), ask: make(chan awaited, 1),
		fetches: map[*wait]struct{}{}}
	pool := arena.NewPool(cfg.Arenas, cfg.ArenaMemory, cfg.Log)
	l.alerts = &alerts{log: cfg.Log, condition: newCondition()}
	l.masks = &masks{
		fail: cfg.Fail, log: cfg.Log, up: l.up, condition: newCondition(),
		masked: map[segment]bool{}, bad: map[segment]*proto.Bad{},
	}
	l.dir = &directory{
		orchestrator: cfg.Orchestrator, here: cfg.Up, fail: cfg.Fail, log: cfg.Log, up: l.up, conns: l.conns,
		watch: l.watch, pool: pool, condition: newCondition(), stripes: map[string]uint32{},
		routes: map[stripeKey]*route{}, paces: map[string]*pace{},
	}
	l.progress = &progress{
		hosted: len(cfg.Ranks), topology: cfg.Topology, shapes: constructors.NewSet(cfg.Shapes, cfg.PadMultiple),
		fail: cfg.Fail, events: cfg.Events, up: l.up, condition: newCondition(),
		plans: map[millrace.Step]*sidecar.StepPlan{},
		calls: map[uint64]*pendingJoin{}, ranks: map[millrace.Rank]*position{},
	}
	l.fetcher = &suppliers{
		clock: cfg.Clock, fail: cfg.Fail, up: l.up, dir: l.dir, conns: l.conns, watch: l.watch,
		masks: l.masks, waits: l.waits, pool: pool, dump: dump{cfg.Dump, cfg.Log},
		places: &places{files: cfg.Files, clock: cfg.Clock, log: cfg.Log, paused: map[string]time.Time{}},
	}
	l.tier = tier.New(tier.Config{
		Name: cfg.Name, Loaders: l.fetcher, Plan: l.Plan, IsMasked: l.isMasked, Feeds: cfg.feeds(), Net: peers{l.peers},
		Room: cfg.ArenaMemory / 2, Clock: cfg.Clock, Fail: cfg.Fail, Log: cfg.Log,
	})
	l.dir.asks = l.tier.AsksLoaders
	return l
}

// isMasked reports whether an assignment is masked on this host.
func (l *Link) isMasked(a *millrace.Assignment) bool {
	sources := l.dir.sourceNames()
	l.masks.Lock()
	defer l.masks.Unlock()
	return l.masks.hides(sources[a.Source].Name, a)
}

// Run keeps the stream to the orchestrator open and watches the loaders until ctx ends. It returns an error if another
// sidecar has replaced this one, or if the orchestrator refuses this program.
func (l *Link) Run(ctx context.Context) error {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	var patrol errgroup.Group
	stop, err := l.serve(&patrol)
	if err != nil {
		return err
	}
	patrol.Go(func() error { l.watch.Patrol(ctx); return nil })
	patrol.Go(func() error { l.waits.askLoaders(ctx, l.conns); return nil })
	if l.cfg.Meter != nil {
		patrol.Go(func() error { l.reportFigures(ctx); return nil })
	}
	defer func() {
		leave()
		stop()
		_ = patrol.Wait()
		l.tier.Close()
		l.conns.closeAll()
		l.peers.closeAll()
		l.watch.Retain(nil)
		l.dir.pool.KeepOnly(nil)
	}()
	conn, err := l.conns.dial(l.cfg.Orchestrator)
	if err != nil {
		return err
	}
	for {
		err := l.session(ctx, proto.NewOrchestratorClient(conn))
		if ctx.Err() != nil {
			return nil
		}
		switch err.(type) {
		case *replaced, *refused:
			return err
		}
		l.cfg.Log.Debug("lost the orchestrator", "error", err)
		l.waits.orchestratorSays(activity.Cause{Kind: activity.Plan, Role: "orchestrator",
			Text: "the orchestrator is not there; it is being restarted"})
		select {
		case <-ctx.Done():
		case <-l.cfg.Clock.After(retryAfter):
		}
	}
}

// serve serves the sidecars of other hosts in the group, until the caller calls stop.
func (l *Link) serve(group *errgroup.Group) (stop func(), err error) {
	if l.cfg.Remote == "" {
		return func() {}, nil
	}
	listener, remote, err := l.cfg.Credentials.Listen(l.cfg.Net, l.cfg.Remote)
	if err != nil {
		return nil, fmt.Errorf("listen for sidecars of other hosts: %w", err)
	}
	l.remote = remote
	server := grpc.NewServer(append(l.cfg.Credentials.Server(), grpc.ForceServerCodecV2(wire.NewPayload()),
		grpc.WaitForHandlers(true))...) // handlers use the tier, which is closed later
	proto.RegisterConstructorServer(server, l.tier.Server())
	group.Go(func() error { _ = server.Serve(listener); return nil }) // stop ends it
	return server.Stop, nil
}

// session serves one stream to the orchestrator: it sends a greeting and carries out orders.
func (l *Link) session(ctx context.Context, client proto.OrchestratorClient) error {
	group, ctx := errgroup.WithContext(ctx)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := client.Serve(ctx, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	l.greet()
	group.Go(func() error { l.up.drain(ctx, cancel, stream); return nil })
	group.Go(func() error { l.waits.probe(ctx, client); return nil })
	group.Go(func() error {
		for {
			order, err := stream.Recv()
			if err := wire.FromStatus(err); errors.Is(err, millrace.ErrInvalid) {
				return &refused{err.Error()}
			}
			if err != nil {
				return err
			}
			if err := l.obey(order); err != nil {
				return err
			}
		}
	})
	return group.Wait()
}

// greet queues the positions of the ranks for a new orchestrator, and repeats every event that no orchestrator has
// answered.
func (l *Link) greet() {
	l.cfg.Fail.Hit("sidecar/greet/before")
	hello := &proto.SidecarHello{Name: l.cfg.Name, Version: l.cfg.Version, Born: l.born,
		Identity: l.identity, Host: l.cfg.Host, Up: l.cfg.Up, Parts: l.cfg.parts(),
		Remote: l.remote, World: uint32(l.cfg.Topology.Ranks), Tp: uint32(l.cfg.Topology.TP),
		Cp: uint32(l.cfg.Topology.CP), Pp: uint32(l.cfg.Topology.PP)}
	if l.remote != "" {
		for _, r := range l.cfg.feeds() {
			hello.Feeds = append(hello.Feeds, uint32(r))
		}
	}
	l.progress.greet(hello)
	l.waits.orchestratorSays(activity.Cause{})
	l.dir.repeatSwitches()
	l.masks.repeatReports()
	l.progress.repeatComplaint()
	l.cfg.Fail.Hit("sidecar/greet/after")
}

// parts lists the data-parallel ranks whose parts of plans this host needs. It returns nil if these are all.
func (c *Config) parts() (out []uint32) {
	for _, r := range c.Ranks {
		out = append(out, uint32(c.Topology.Coordinates(r).DP))
	}
	slices.Sort(out)
	if out = slices.Compact(out); len(out) == c.Topology.DP() {
		return nil
	}
	return out
}

// feeds lists the data-parallel ranks whose tokens this host needs, in ascending order.
func (c *Config) feeds() []millrace.Rank {
	b := sidecar.Begin{Topology: c.Topology, Broadcast: c.Broadcast, Untrained: c.Untrained, Fields: c.Fields}
	return slices.Sorted(slices.Values(b.Fed(c.Ranks)))
}

// obey carries out one order. It refuses an order below the highest term seen, because its sender is fenced.
func (l *Link) obey(order *proto.SidecarOrder) error {
	term := order.GetFence().GetTerm()
	isNew, err := l.up.admit(term)
	if err != nil {
		return err
	}
	if isNew {
		l.cfg.Term(millrace.Term(term))
	}
	switch o := order.GetOrder().(type) {
	case *proto.SidecarOrder_Bye:
		return &replaced{o.Bye.Reason}
	case *proto.SidecarOrder_Welcome:
		l.dir.adopt(o.Welcome.Manifests)
		l.masks.add(o.Welcome.Masks)
	case *proto.SidecarOrder_Masked:
		l.masks.add(o.Masked.Masks)
	case *proto.SidecarOrder_Alerts:
		l.alerts.replace(o.Alerts.Alerts)
	case *proto.SidecarOrder_Loaders:
		return l.dir.load(o.Loaders)
	case *proto.SidecarOrder_Switched:
		l.dir.join(o.Switched)
	case *proto.SidecarOrder_Starved:
		l.dir.starve(o.Starved)
	case *proto.SidecarOrder_Groups:
		l.tier.Follow(o.Groups)
	case *proto.SidecarOrder_Plan:
		return l.progress.addPlan(o.Plan, l.dir.sourceNames())
	case *proto.SidecarOrder_Part:
		return l.progress.addPart(o.Part, l.dir.sourceNames())
	case *proto.SidecarOrder_Begin:
		l.progress.begin(o.Begin)
	case *proto.SidecarOrder_RollCall:
		l.progress.tellPresent(o.RollCall)
	case *proto.SidecarOrder_Refusal:
		l.progress.refuse(o.Refusal)
	case *proto.SidecarOrder_Ended:
		l.progress.finish(o.Ended)
	case *proto.SidecarOrder_Failed:
		l.progress.abort(o.Failed)
	case *proto.SidecarOrder_Waiting:
		cause := wire.CauseFromProto(o.Waiting.Cause)
		cause.Text = o.Waiting.Text
		l.waits.orchestratorSays(cause)
	case *proto.SidecarOrder_Committed:
		l.progress.confirm(o.Committed)
	}
	return nil
}

// Join implements sidecar.Upstream.
func (l *Link) Join(ctx context.Context, rank millrace.Rank, start sidecar.Start) (sidecar.Begin, error) {
	b, err := l.progress.join(ctx, rank, start)
	if err != nil {
		return sidecar.Begin{}, err
	}
	return sidecar.Begin{
		Attempt: millrace.Attempt(
			b.Attempt,
		), Term: millrace.Term(l.up.highestTerm()), Step: millrace.Step(b.Step), Microbatch: b.Microbatch,
		State: b.State, Notice: b.Notice, Topology: l.cfg.Topology, Broadcast: l.cfg.Broadcast,
		Shapes: l.cfg.Shapes, PadMultiple: l.cfg.PadMultiple, Untrained: l.cfg.Untrained, Fields: l.cfg.Fields,
	}, nil
}

// Plan implements sidecar.Upstream.
func (l *Link) Plan(ctx context.Context, attempt millrace.Attempt, step millrace.Step) (*sidecar.StepPlan, error) {
	return l.progress.planned(ctx, attempt, step)
}

// Commit implements sidecar.Upstream: it returns when the orchestrator has answered.
func (l *Link) Commit(ctx context.Context, rank millrace.Rank, attempt millrace.Attempt, step millrace.Step) error {
	return l.progress.commit(ctx, rank, attempt, step)
}

// CheckpointSaved implements sidecar.Upstream. The event may be lost; the run then retains more.
func (l *Link) CheckpointSaved(_ context.Context, _ millrace.Rank, _ millrace.Attempt, step millrace.Step) error {
	l.up.send(&proto.SidecarEvent{Event: &proto.SidecarEvent_Saved{Saved: &proto.Saved{Step: uint64(step)}}})
	return nil
}

// Reported implements sidecar.Upstream.
func (l *Link) Reported(rank millrace.Rank, r sidecar.Report) {
	out := &proto.Reported{
		Rank: uint32(
			rank,
		), Attempt: uint32(r.Attempt), Step: uint64(r.Step), Microbatch: r.Microbatches, Seconds: r.Seconds,
	}
	for _, x := range r.Losses {
		out.Losses = append(out.Losses, &proto.SourceLoss{Source: x.Source, LossSum: x.Sum, Tokens: x.Tokens})
	}
	l.up.send(&proto.SidecarEvent{Event: &proto.SidecarEvent_Reported{Reported: out}})
}

// ReportGPUs sends the figures of the GPUs of this host's ranks. The event may be lost.
func (l *Link) ReportGPUs(f *proto.GpuFigures) {
	l.up.offer(&proto.SidecarEvent{Event: &proto.SidecarEvent_Gpus{Gpus: f}})
}

// Supply returns the bytes of tokens that have come from other roles and gone to other hosts.
func (l *Link) Supply() *proto.Supply { return l.tier.Supply() }

// Left implements sidecar.Upstream.
func (l *Link) Left(rank millrace.Rank) { l.progress.leave(rank) }

// Waiting implements sidecar.Upstream. It returns the reason of the earliest waiting step and the orchestrator's
// reason.
func (l *Link) Waiting() activity.Cause { return l.waits.summary() }

// Alerts implements sidecar.Upstream.
func (l *Link) Alerts(ctx context.Context, after uint64) (alerts []sidecar.Alert, version uint64, err error) {
	return l.alerts.newerThan(ctx, after)
}

// Fetch implements sidecar.Fetcher. It replaces a dead or silent loader by its standby, or waits for a new loader if
// there is no standby. It reports a final error to the orchestrator, which ends the run.
func (l *Link) Fetch(ctx context.Context, plan *millrace.Plan, ranks []millrace.Rank) (sidecar.Payload, error) {
	l.cfg.Fail.Hit("sidecar/fetch/before")
	p, err := l.tier.Fetch(ctx, plan, ranks)
	if err != nil {
		if ctx.Err() == nil {
			l.progress.complain(err.Error())
		}
		return nil, err
	}
	l.cfg.Fail.Hit("sidecar/fetch/after")
	return p, nil
}
