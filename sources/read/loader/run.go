package loader

import (
	"context"
	"errors"
	"fmt"
	"net"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"millrace"
	"millrace/internal/secure"
	"millrace/internal/wire"
	"millrace/proto"
)

// Run serves until ctx ends or the loader leaves, and then returns nil. The loader leaves if the orchestrator dismisses
// it, or if a newer process has its name. If it was asked to leave, it first hands over its stripes. The log has the
// reason. If the orchestrator refuses its program or its name, Run returns the reason.
func (l *Loader) Run(ctx context.Context) error {
	listeners, err := l.listen()
	if err != nil {
		return err
	}
	server := grpc.NewServer(append(l.cfg.Credentials.Server(), grpc.ForceServerCodecV2(wire.NewPayload()),
		grpc.WriteBufferSize(512<<10), grpc.ReadBufferSize(64<<10),
		grpc.StatsHandler(connections{l.cfg.Arenas, l.cfg.Log}),
		grpc.WaitForHandlers(true))...) // handlers read from sources, which are closed later
	proto.RegisterLoaderServer(server, l)
	group, inner := errgroup.WithContext(ctx)
	for _, listener := range listeners {
		group.Go(func() error { return server.Serve(listener) })
	}
	group.Go(func() error {
		<-inner.Done()
		server.Stop()
		return nil
	})
	group.Go(func() error { return l.pool.Run(inner) })
	group.Go(func() error { return l.report(inner) })
	group.Go(func() error { return l.leave(inner) })
	if l.cfg.Cache != nil {
		filler := l.cfg.Cache.Filler()
		group.Go(func() error { return filler.Run(inner, l.pool.IsBusy) })
		group.Go(func() error { return l.reportCache(inner) })
	}
	if l.cfg.Meter != nil {
		group.Go(func() error { return l.reportFigures(inner) })
	}
	if l.cfg.Beat != nil {
		group.Go(func() error { return l.cfg.Beat.Run(inner) })
		if l.cfg.Remote != "" {
			group.Go(func() error { return timeDelays(inner, l.cfg.Beat, l.cfg.Clock) })
		}
	}
	l.cfg.Ready()
	err = group.Wait()
	l.closeSources()
	var left *farewell
	if ctx.Err() != nil || errors.As(err, &left) {
		return nil // errors of the ended work are no fault
	}
	return err
}

// listen listens for sidecars of this host, and of other hosts if there are any. It sets the address for the latter.
func (l *Loader) listen() ([]net.Listener, error) {
	own, err := l.cfg.Net.Listen(l.cfg.Address)
	if err != nil {
		return nil, fmt.Errorf("listen for sidecars: %w", err)
	}
	if l.cfg.Remote == "" {
		return []net.Listener{own}, nil
	}
	others, remote, err := l.cfg.Credentials.Listen(l.cfg.Net, l.cfg.Remote)
	if err != nil {
		own.Close()
		return nil, fmt.Errorf("listen for sidecars of other hosts: %w", err)
	}
	l.remote = remote
	return []net.Listener{own, others}, nil
}

// report keeps a stream to the orchestrator, and to its successors, until ctx ends.
func (l *Loader) report(ctx context.Context) error {
	options := append(l.cfg.Credentials.Client(l.cfg.Net, l.cfg.Orchestrator, secure.Orchestrator),
		grpc.WithConnectParams(reconnect()))
	conn, err := grpc.NewClient(secure.Target, options...)
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

// session is one stream: hello, then orders. Work that an order starts outlives the stream and ends with ctx.
func (l *Loader) session(ctx context.Context, client proto.OrchestratorClient, group *errgroup.Group) error {
	sctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := client.Load(sctx, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	out := newReporter()
	hello := &proto.LoaderHello{
		Name:    l.cfg.Name,
		Pid:     l.cfg.Pid,
		Address: l.cfg.Address,
		Standby: l.cfg.Standby,
		Beat:    l.cfg.Beat.Path(),
		Version: l.cfg.Version,

		Identity: l.identity,
		Host:     l.cfg.Host,
		Up:       l.cfg.Up,
		Remote:   l.remote,
		Held:     l.held(),
	}
	l.cfg.Fail.Hit("loader/hello/before")
	out.send(0, &proto.LoaderEvent{Event: &proto.LoaderEvent_Hello{Hello: hello}})
	l.cfg.Fail.Hit("loader/hello/after")
	group.Go(func() error { out.queue.Send(sctx, cancel, stream.Send, merged); return nil })
	l.mu.Lock()
	l.out, l.online = out, true // other goroutines send their events after the hello
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
		out.tellLeaving(reason, l.cfg.ForGood())
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
	case *proto.LoaderOrder_Reading:
		l.move(o.Reading)
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
