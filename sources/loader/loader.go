package loader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"millrace"
	"millrace/internal/event"
	"millrace/internal/failpoint"
	"millrace/internal/heartbeat"
	"millrace/internal/seam"
	"millrace/internal/wire"
	"millrace/proto"
	"millrace/sources"
	"millrace/sources/budget"
)

// Config sets a loader's host and its run.
type Config struct {
	Name         string
	Address      string                                    // at which it serves
	Orchestrator string                                    // its address
	Spec         func(source string) (sources.Spec, error) // describes a source of the mixture
	// tells a restarted process from the one before; default: the operating system's
	Pid      int64
	Standby  bool            // ask to be a shadow
	Version  *proto.Version  // of this binary
	Beat     *heartbeat.Page // nil: nobody watches
	Leave    <-chan struct{} // closed to make the process hand over and leave; nil: never
	Memory   int64           // bytes of payload held
	Parallel int             // decoders of a feed; default GOMAXPROCS
	Net      seam.Net
	Clock    seam.Clock
	Fail     *failpoint.Set
	Events   *event.Log
	Log      *slog.Logger
	Ready    func()              // called once it serves
	Term     func(millrace.Term) // called with every term under which it reads as a primary
	Role     func(standby bool)  // called when it becomes a shadow, or a primary; default: nothing
}

const (
	retry      = 50 * time.Millisecond // wait between attempts to reach the orchestrator
	reopen     = time.Second           // wait before a source with missing files is opened again
	leaveGrace = 4 * time.Second       // the longest wait of a leaving loader for others to take over its stripes
)

// stripe names a stripe of a source.
type stripe struct {
	source string
	index  uint32
}

func (s stripe) String() string { return fmt.Sprintf("%s/%d", s.source, s.index) }

// Loader is the state of one loader process.
type Loader struct {
	proto.UnimplementedLoaderServer
	cfg      Config
	budget   *budget.Budget
	mu       sync.Mutex
	open     map[string]*sources.Source
	gates    map[string]*sync.Mutex         // by source: held while it is opened
	reads    map[string]map[uint32]*reading // by source and stripe; none is empty
	out      *reporter                      // of the newest session
	going    string                         // reason why it was asked to leave; empty: it was not
	online   bool                           // an orchestrator listens
	shadow   bool                           // the last argument of Role
	troubles map[string]string              // by source: the reads that fail for now
	term     uint64                         // highest orchestrator term seen; the session's own
}

// New returns a loader. Run starts it.
func New(cfg Config) *Loader {
	if cfg.Pid == 0 {
		cfg.Pid = int64(os.Getpid())
	}
	if cfg.Role == nil {
		cfg.Role = func(bool) {}
	}
	return &Loader{
		shadow:   cfg.Standby,
		cfg:      cfg,
		budget:   budget.New(cfg.Memory),
		open:     map[string]*sources.Source{},
		gates:    map[string]*sync.Mutex{},
		reads:    map[string]map[uint32]*reading{},
		troubles: map[string]string{},
	}
}

// Run serves until ctx ends, the orchestrator dismisses or refuses the loader (the log has the reason), or the loader
// was asked to leave and has handed over.
func (l *Loader) Run(ctx context.Context) error {
	listener, err := l.cfg.Net.Listen(l.cfg.Address)
	if err != nil {
		return fmt.Errorf("listen for constructors: %w", err)
	}
	server := grpc.NewServer(grpc.ForceServerCodecV2(wire.NewPayload()), grpc.MaxSendMsgSize(wire.MaxMessage),
		grpc.WriteBufferSize(512<<10), grpc.ReadBufferSize(64<<10),
		grpc.WaitForHandlers(true)) // handlers read from sources, which are closed later
	proto.RegisterLoaderServer(server, l)
	group, inner := errgroup.WithContext(ctx)
	group.Go(func() error { return server.Serve(listener) })
	group.Go(func() error {
		<-inner.Done()
		server.Stop()
		return nil
	})
	group.Go(func() error { return l.report(inner) })
	group.Go(func() error { return l.leave(inner) })
	if l.cfg.Beat != nil {
		group.Go(func() error { return l.cfg.Beat.Run(inner) })
	}
	l.cfg.Ready()
	err = group.Wait()
	l.close()
	var left *farewell
	if ctx.Err() != nil || errors.As(err, &left) {
		return nil // errors of the ended work are no fault
	}
	return err
}

// report keeps a stream to the orchestrator, and to its successors, until ctx ends.
func (l *Loader) report(ctx context.Context) error {
	conn, err := grpc.NewClient(
		"passthrough:///orchestrator",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(
			func(ctx context.Context, _ string) (net.Conn, error) { return l.cfg.Net.Dial(ctx, l.cfg.Orchestrator) },
		),
		grpc.WithConnectParams(reconnect()),
	)
	if err != nil {
		return fmt.Errorf("reach orchestrator: %w", err)
	}
	defer conn.Close()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		for {
			err := l.session(ctx, proto.NewOrchestratorClient(conn), group)
			var left *farewell
			if errors.As(err, &left) && l.leaveReason() == "" {
				l.cfg.Log.Warn("leaving", "reason", left.reason)
			}
			var no *refused
			if left != nil || ctx.Err() != nil || errors.As(err, &no) {
				return err
			}
			l.cfg.Log.Debug("lost the orchestrator", "error", err)
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-l.cfg.Clock.After(retry):
			}
		}
	})
	return group.Wait()
}

// farewell is the reason for which a loader ends without a fault.
type farewell struct{ reason string }

func (e *farewell) Error() string { return e.reason }

// refused is the error of a program or a name that has no place in the run. Another try would be refused too.
type refused struct{ reason string }

func (e *refused) Error() string { return "refused by the orchestrator: " + e.reason }

// session is one stream: hello, then orders. Work that an order starts outlives the stream and ends with ctx.
func (l *Loader) session(ctx context.Context, client proto.OrchestratorClient, group *errgroup.Group) error {
	sctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := client.Load(sctx, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	out := &reporter{stream: stream}
	hello := &proto.LoaderHello{
		Name:    l.cfg.Name,
		Pid:     l.cfg.Pid,
		Address: l.cfg.Address,
		Standby: l.cfg.Standby,
		Beat:    l.cfg.Beat.Path(),
		Version: l.cfg.Version,
	}
	l.cfg.Fail.Hit("loader/hello/before")
	_ = out.send(0, &proto.LoaderEvent{Event: &proto.LoaderEvent_Hello{Hello: hello}}) // Recv returns the error
	l.cfg.Fail.Hit("loader/hello/after")
	l.mu.Lock()
	l.out, l.online = out, true // events of others come after the hello
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.online = false
		l.mu.Unlock()
	}()
	for source, text := range l.currentTroubles() {
		out.trouble(source, text)
	}
	if reason := l.leaveReason(); reason != "" {
		out.tellLeaving(reason)
	}
	for {
		order, err := stream.Recv()
		if err = wire.FromStatus(err); errors.Is(err, millrace.ErrFenced) {
			return &farewell{"refused by the orchestrator: " + err.Error()}
		}
		if errors.Is(err, millrace.ErrInvalid) {
			return &refused{err.Error()}
		}
		if err != nil {
			return err
		}
		if err := l.obey(ctx, out, order, group); err != nil {
			return err
		}
	}
}

// obey carries out one order. Opening a source takes long and runs in the group.
func (l *Loader) obey(ctx context.Context, out *reporter, order *proto.LoaderOrder, group *errgroup.Group) error {
	if term := order.GetFence().GetTerm(); term < l.term {
		return millrace.Errorf(millrace.ErrFenced, "order of term %d after term %d", term, l.term)
	} else {
		l.term = term
	}
	switch o := order.GetOrder().(type) {
	case *proto.LoaderOrder_Open:
		group.Go(func() error { return l.openSource(ctx, out, o.Open) })
	case *proto.LoaderOrder_Read:
		return l.read(ctx, out, o.Read, group)
	case *proto.LoaderOrder_Want:
		for _, r := range l.readings(o.Want.Source) {
			r.want(millrace.Ordinal(o.Want.Until))
		}
	case *proto.LoaderOrder_Release:
		for _, r := range l.readings(o.Release.Source) {
			r.release(millrace.Ordinal(o.Release.Below), wire.SeekPointFromProto(o.Release.SeekPoint))
		}
	case *proto.LoaderOrder_Promote:
		l.promote(out, o.Promote)
	case *proto.LoaderOrder_Drop:
		l.cfg.Fail.Hit("loader/drop/before")
		l.drop(stripe{o.Drop.Source, o.Drop.Stripe}, o.Drop.Term)
		l.cfg.Fail.Hit("loader/drop/after")
	case *proto.LoaderOrder_Bye:
		l.cfg.Fail.Hit("loader/bye/before")
		return &farewell{"told to leave: " + o.Bye.Reason}
	}
	return nil
}

// currentTroubles returns the reads that fail for now, by source.
func (l *Loader) currentTroubles() map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.troubles)
}

// newest returns the reporter of the newest session.
func (l *Loader) newest() *reporter {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out
}

func (l *Loader) reading(of stripe) *reading {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reads[of.source][of.index]
}

// readings returns the readings of one source.
func (l *Loader) readings(source string) []*reading {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Values(l.reads[source]))
}

// fatal tells the orchestrator that a source cannot go on. The process lives until the run ends.
func (l *Loader) fatal(ctx context.Context, out *reporter, source string, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	l.cfg.Log.Error("source cannot go on", "source", source, "error", err)
	_ = out.send(0,
		&proto.LoaderEvent{Event: &proto.LoaderEvent_Fatal{Fatal: &proto.Fatal{Source: source, Reason: err.Error()}}})
	return nil
}

func (l *Loader) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.open {
		s.Close()
	}
}
