package loader

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
	"google.golang.org/grpc/credentials/insecure"

	"millrace"
	"millrace/internal/event"
	"millrace/internal/failpoint"
	"millrace/internal/seam"
	"millrace/internal/wire"
	"millrace/proto"
	"millrace/sources"
)

// Config is what a loader needs of its host and its run.
type Config struct {
	Name         string
	Address      string                                    // where it serves
	Orchestrator string                                    // where it reports
	Version      *proto.Version                            // of this program
	Spec         func(source string) (sources.Spec, error) // what a source is
	Memory       int64                                     // bytes of payload held
	Parallel     int                                       // goroutines; 0 is one a processor
	Net          seam.Net
	Clock        seam.Clock
	Fail         *failpoint.Set
	Events       *event.Log
	Log          *slog.Logger
	Ready        func()              // called once it serves
	Term         func(millrace.Term) // told every term under which it reads
}

// retry is the wait between attempts to reach the orchestrator.
const retry = 50 * time.Millisecond

// Loader is one loader process's state.
type Loader struct {
	proto.UnimplementedLoaderServer
	cfg    Config
	budget *sources.Budget
	mu     sync.Mutex
	open   map[string]*sources.Source
	gates  map[string]*sync.Mutex // by source: held while it is being opened
	reads  map[string]*reading    // by source: one stripe of a source a loader
	out    *reporter              // of the newest session
	term   uint64                 // highest orchestrator term seen; the session's own
}

// New returns a loader; nothing runs before Run.
func New(cfg Config) *Loader {
	return &Loader{cfg: cfg, budget: sources.NewBudget(cfg.Memory), open: map[string]*sources.Source{}, gates: map[string]*sync.Mutex{}, reads: map[string]*reading{}}
}

// Run serves until ctx ends or a source cannot go on (why, after the orchestrator was told).
func (l *Loader) Run(ctx context.Context) error {
	listener, err := l.cfg.Net.Listen(l.cfg.Address)
	if err != nil {
		return fmt.Errorf("listen for constructors: %w", err)
	}
	server := grpc.NewServer(grpc.ForceServerCodecV2(wire.NewPayload()), grpc.MaxSendMsgSize(256<<20), grpc.WriteBufferSize(512<<10), grpc.ReadBufferSize(64<<10),
		grpc.WaitForHandlers(true)) // they read from sources, which close after them
	proto.RegisterLoaderServer(server, l)
	group, inner := errgroup.WithContext(ctx)
	group.Go(func() error { return server.Serve(listener) })
	group.Go(func() error {
		<-inner.Done()
		server.Stop()
		return nil
	})
	group.Go(func() error { return l.report(inner) })
	l.cfg.Ready()
	err = group.Wait()
	l.close()
	if ctx.Err() != nil {
		return nil // asked to stop: what was cut off by it is no fault
	}
	return err
}

// report keeps a stream to the orchestrator, whichever process that is, for as long as the loader lives.
func (l *Loader) report(ctx context.Context) error {
	conn, err := grpc.NewClient("passthrough:///orchestrator", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.cfg.Net.Dial(ctx, l.cfg.Orchestrator) }),
		grpc.WithConnectParams(reconnect()))
	if err != nil {
		return fmt.Errorf("reach orchestrator: %w", err)
	}
	defer conn.Close()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		for {
			err := l.session(ctx, proto.NewOrchestratorClient(conn), group)
			var left *leave
			if errors.As(err, &left) || ctx.Err() != nil {
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

// leave is why a loader stops for good.
type leave struct{ reason string }

func (e *leave) Error() string { return e.reason }

// session is one stream: hello, then orders. What an order starts goes on after the stream: it lives in ctx.
func (l *Loader) session(ctx context.Context, client proto.OrchestratorClient, group *errgroup.Group) error {
	sctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := client.Load(sctx, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	out := &reporter{stream: stream}
	l.mu.Lock()
	l.out = out
	l.mu.Unlock()
	if err := out.send(0, &proto.LoaderEvent{Event: &proto.LoaderEvent_Hello{Hello: &proto.LoaderHello{Name: l.cfg.Name, Pid: int64(os.Getpid()), Address: l.cfg.Address, Version: l.cfg.Version}}}); err != nil {
		return err
	}
	for {
		order, err := stream.Recv()
		if err != nil {
			return err
		}
		if err := l.obey(ctx, out, order, group); err != nil {
			return err
		}
	}
}

// obey carries out one order. Opening takes long and runs beside.
func (l *Loader) obey(ctx context.Context, out *reporter, order *proto.LoaderOrder, group *errgroup.Group) error {
	if term := order.GetFence().GetTerm(); term < l.term {
		return fmt.Errorf("order of term %d after term %d: %w", term, l.term, millrace.ErrFenced)
	} else {
		l.term = term
	}
	switch o := order.GetOrder().(type) {
	case *proto.LoaderOrder_Open:
		group.Go(func() error { return l.openSource(ctx, out, o.Open.Source) })
	case *proto.LoaderOrder_Read:
		return l.read(ctx, out, o.Read, group)
	case *proto.LoaderOrder_Want:
		if r := l.reading(o.Want.Source); r != nil {
			r.feed.Want(millrace.Ordinal(o.Want.Until))
		}
	case *proto.LoaderOrder_Release:
		if r := l.reading(o.Release.Source); r != nil {
			r.release(millrace.Ordinal(o.Release.Below))
		}
	case *proto.LoaderOrder_Bye:
		return &leave{"told to leave: " + o.Bye.Reason}
	}
	return nil
}

// newest is the reporter of the newest session.
func (l *Loader) newest() *reporter {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out
}

func (l *Loader) reading(source string) *reading {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reads[source]
}

// fatal tells the orchestrator that a source cannot go on. The process stays: the run's end ends it.
func (l *Loader) fatal(ctx context.Context, out *reporter, source string, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	l.cfg.Log.Error("source cannot go on", "source", source, "error", err)
	_ = out.send(0, &proto.LoaderEvent{Event: &proto.LoaderEvent_Fatal{Fatal: &proto.Fatal{Source: source, Reason: err.Error()}}})
	return nil
}

func (l *Loader) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.open {
		s.Close()
	}
}
