package link

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"millrace"
	"millrace/internal/event"
	"millrace/internal/failpoint"
	"millrace/internal/heartbeat"
	"millrace/internal/seam"
	"millrace/internal/wire"
	"millrace/proto"
	"millrace/sidecar"
)

// Config is what a link needs.
type Config struct {
	Name         string
	Orchestrator string           // address
	Version      *proto.Version   // of this program
	Shapes       []millrace.Shape // of the stages, the first stage's first
	PadMultiple  uint32
	Topology     millrace.Topology
	Broadcast    millrace.Broadcast
	Ranks        int // of the topology's, on this host
	Net          seam.Net
	Clock        seam.Clock
	Fail         *failpoint.Set
	Events       *event.Log
	Log          *slog.Logger
	Term         func(millrace.Term) // told every new term of the orchestrator
	Pages        heartbeat.Pages     // of the loaders of this host; nil: only the end of a stream tells that one is dead
	Dump         string              // directory for what two loaders gave differently; empty: it is not written
}

// retry is the wait before something that failed is tried again.
const retry = 20 * time.Millisecond

// Link implements sidecar.Upstream and sidecar.Fetcher. Run keeps it connected; calls wait while it is not.
type Link struct {
	cfg  Config
	born int64

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced whenever something below changes
	stream   proto.Orchestrator_ServeClient
	term     uint64
	sources  []sidecar.SourceNames
	routes   map[stripeKey]*route
	watched  map[string]*watched // by address
	caution  heartbeat.Caution   // of the judges of watched
	asks     int                 // requests in flight that are watched
	awake    chan struct{}       // the first of them has begun
	waits    map[*need]wait      // what fetches wait for
	masks    map[segment]bool
	bad      map[segment]*proto.Bad // told to every orchestrator until it is masked
	alerts   []sidecar.Alert
	alerted  uint64        // counts the lists of alerts
	doubt    chan struct{} // somebody asked what is waited for
	mute     time.Time     // since when the orchestrator answers nothing; zero: it answers
	attempt  millrace.Attempt
	plans    map[millrace.Step]*sidecar.StepPlan
	end      *proto.Ended
	failed   *sidecar.RunError
	fatal    *proto.Fatal // why this host cannot go on: every orchestrator is told
	waiting  string
	calls    map[uint64]*call
	lastCall uint64
	ranks    map[millrace.Rank]*position
	conns    map[string]*grpc.ClientConn
	closed   bool
}

// call is a Join that waits for its answer.
type call struct {
	msg    *proto.Join
	answer chan any // *proto.Begin or *proto.Refusal
}

// position is where a rank stands, as the orchestrator must be told when it is new.
type position struct {
	attempt   millrace.Attempt
	committed uint64 // steps below were committed by the trainer
	known     uint64 // of these, the orchestrator has answered for
	begun     bool
	left      bool // its trainer is gone
}

// New returns a link that is not connected before Run.
func New(cfg Config) *Link {
	return &Link{cfg: cfg, born: cfg.Clock.Boottime(), changed: make(chan struct{}), plans: map[millrace.Step]*sidecar.StepPlan{}, calls: map[uint64]*call{},
		ranks: map[millrace.Rank]*position{}, conns: map[string]*grpc.ClientConn{}, routes: map[stripeKey]*route{},
		watched: map[string]*watched{}, awake: make(chan struct{}, 1), doubt: make(chan struct{}, 1), waits: map[*need]wait{}, masks: map[segment]bool{}, bad: map[segment]*proto.Bad{}}
}

// Run keeps the stream to the orchestrator until ctx ends, and an eye on the loaders. It returns an error where another sidecar took
// this one's place, or where the orchestrator refuses this program.
func (l *Link) Run(ctx context.Context) error {
	ctx, leave := context.WithCancel(ctx)
	var eyes errgroup.Group
	eyes.Go(func() error { l.watch(ctx); return nil })
	defer func() { leave(); _ = eyes.Wait(); l.close() }()
	conn, err := l.dial(l.cfg.Orchestrator)
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
		l.set(func() { l.stream, l.waiting = nil, "the orchestrator is not there; it is being restarted" })
		select {
		case <-ctx.Done():
		case <-l.cfg.Clock.After(retry):
		}
	}
}

// connect is dial where the caller holds mu.
func (l *Link) connect(address string) (*grpc.ClientConn, error) {
	if c := l.conns[address]; c != nil {
		return c, nil
	}
	if l.closed {
		return nil, fmt.Errorf("reach %s: this sidecar is leaving: %w", address, context.Canceled)
	}
	c, err := grpc.NewClient("passthrough:///"+"role", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.cfg.Net.Dial(ctx, address) }),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(wire.MaxMessage), grpc.ForceCodecV2(wire.NewPayload())), grpc.WithReadBufferSize(512<<10),
		grpc.WithIdleTimeout(0), grpc.WithInitialWindowSize(16<<20), grpc.WithInitialConnWindowSize(32<<20),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Second,
			Backoff: backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.5, MaxDelay: 200 * time.Millisecond}}))
	if err != nil {
		return nil, fmt.Errorf("reach %s: %w", address, err)
	}
	l.conns[address] = c
	return c, nil
}

func (l *Link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true // a fetch that is still on its way would open one that nobody closes
	for _, c := range l.conns {
		c.Close()
	}
	for _, w := range l.watched {
		if w.asks == 0 {
			w.close()
		}
	}
}

// session is one stream: hello, what was not answered, then orders.
func (l *Link) session(ctx context.Context, client proto.OrchestratorClient) error {
	group, ctx := errgroup.WithContext(ctx)
	stream, err := client.Serve(ctx, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	group.Go(func() error { return l.pulse(ctx, client) })
	group.Go(func() error {
		if err := l.greet(stream); err != nil {
			return err
		}
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

// greet tells a new orchestrator where the ranks stand and repeats what was not answered.
func (l *Link) greet(stream proto.Orchestrator_ServeClient) error {
	l.cfg.Fail.Hit("sidecar/greet/before")
	l.mu.Lock()
	defer l.mu.Unlock()
	hello := &proto.SidecarHello{Name: l.cfg.Name, Pid: int64(os.Getpid()), Version: l.cfg.Version, Born: l.born}
	for r, p := range l.ranks {
		hello.Ranks = append(hello.Ranks, &proto.RankPosition{Rank: uint32(r), Attempt: uint32(p.attempt), Below: p.committed, Serving: p.begun})
	}
	if err := stream.Send(&proto.SidecarEvent{Fence: l.fence(), Event: &proto.SidecarEvent_Hello{Hello: hello}}); err != nil {
		return err
	}
	l.stream, l.waiting = stream, ""
	for r, p := range l.ranks {
		if p.left {
			l.sendLeft(r)
		}
	}
	for _, c := range l.calls {
		if err := stream.Send(&proto.SidecarEvent{Fence: l.fence(), Event: &proto.SidecarEvent_Join{Join: c.msg}}); err != nil {
			return err
		}
	}
	for r, p := range l.ranks {
		if p.known < p.committed {
			l.sendCommit(r, p)
		}
	}
	for _, r := range l.routes {
		if r.switched != nil {
			l.send(&proto.SidecarEvent{Event: &proto.SidecarEvent_Switched{Switched: r.switched}})
		}
	}
	for _, b := range l.bad {
		l.send(&proto.SidecarEvent{Event: &proto.SidecarEvent_Bad{Bad: b}})
	}
	if l.fatal != nil {
		l.send(&proto.SidecarEvent{Event: &proto.SidecarEvent_Fatal{Fatal: l.fatal}})
	}
	l.announce()
	l.cfg.Fail.Hit("sidecar/greet/after")
	return nil
}

// complain tells the orchestrator, this one and those to come, that the run cannot go on. The caller holds mu.
func (l *Link) complain(reason string) {
	if l.fatal == nil {
		l.fatal = &proto.Fatal{Reason: reason}
		l.send(&proto.SidecarEvent{Event: &proto.SidecarEvent_Fatal{Fatal: l.fatal}})
	}
}

func (l *Link) fence() *proto.Fence {
	return &proto.Fence{Stream: string(millrace.Train), Attempt: uint32(l.attempt), Term: l.term}
}

// send sends if connected; what matters is repeated by greet. The caller holds mu: a stream takes one sender.
func (l *Link) send(e *proto.SidecarEvent) {
	if l.stream != nil {
		e.Fence = l.fence()
		_ = l.stream.Send(e)
	}
}

func (l *Link) sendLeft(r millrace.Rank) {
	l.send(&proto.SidecarEvent{Event: &proto.SidecarEvent_Left{Left: &proto.Left{Rank: uint32(r)}}})
}

func (l *Link) sendCommit(r millrace.Rank, p *position) {
	l.send(&proto.SidecarEvent{Event: &proto.SidecarEvent_Commit{Commit: &proto.Commit{Rank: uint32(r), Attempt: uint32(p.attempt), Step: p.committed - 1}}})
}

// set changes something and wakes those who wait.
func (l *Link) set(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
	l.announce()
}

func (l *Link) announce() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// await blocks until ready says so; it is called with mu held.
func (l *Link) await(ctx context.Context, ready func() bool) error {
	for {
		l.mu.Lock()
		ok, changed := ready(), l.changed
		l.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
