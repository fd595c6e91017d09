package orchestrator

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"millrace"
	"millrace/internal/wire"
	"millrace/orchestrator/facts"
	"millrace/orchestrator/roster"
	"millrace/proto"
)

// Server adapts the gRPC service to the loop. It turns messages into events.
type Server struct {
	proto.UnimplementedOrchestratorServer
	o        *Orchestrator
	switches switches
}

// NewServer serves o.
func NewServer(o *Orchestrator) *Server {
	return &Server{o: o, switches: switches{to: map[string]*outbox{}, terms: map[facts.Stripe]uint64{}}}
}

// Load carries the messages of one loader until its stream ends.
func (s *Server) Load(stream proto.Orchestrator_LoadServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	hello := first.GetHello()
	if hello == nil {
		return wire.ToStatus(millrace.Errorf(millrace.ErrInvalid, "the first message of a loader is its hello"))
	}
	box := newOutbox()
	// Deferred before LoaderUp: a stream may end before the loop hears of it.
	defer s.o.post(context.Background(), func(m *Machine) { m.loaderDown(box, hello.Name) })
	if err := s.ask(stream.Context(), func(m *Machine) error { return m.LoaderUp(box, hello) }); err != nil {
		return err
	}
	s.o.opt.Fail.Hit("orchestrator/loader/after")
	return s.both(stream.Context(), box,
		func(msg any) error { return stream.Send(msg.(*proto.LoaderOrder)) },
		func(ctx context.Context) error {
			e, err := stream.Recv()
			if err != nil {
				return err
			}
			if e.GetManifest() != nil {
				s.o.opt.Fail.Hit("orchestrator/manifest/before")
			} else if e.GetOffered() != nil {
				s.o.opt.Fail.Hit("orchestrator/offers/before")
			}
			return s.o.post(ctx, func(m *Machine) { m.LoaderEvent(box, hello.Name, e) })
		})
}

// Serve carries the messages of one sidecar until its stream ends.
func (s *Server) Serve(stream proto.Orchestrator_ServeServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	hello := first.GetHello()
	if hello == nil {
		return wire.ToStatus(millrace.Errorf(millrace.ErrInvalid, "the first message of a sidecar is its hello"))
	}
	box := newOutbox()
	defer s.o.post(context.Background(), func(m *Machine) {
		m.SidecarDown(box, hello.Name)
		s.switches.leave(hello.Name, box)
	})
	err = s.ask(stream.Context(), func(m *Machine) error {
		err := m.SidecarUp(box, hello)
		if m.sidecars.Has(box) {
			s.switches.join(hello.Name, box)
		}
		return err
	})
	if err != nil {
		return err
	}
	var heard hearing
	s.o.opt.Fail.Hit("orchestrator/sidecar/after")
	return s.both(stream.Context(), box,
		func(msg any) error { return stream.Send(msg.(*proto.SidecarOrder)) },
		func(ctx context.Context) error {
			asked := s.o.opt.Clock.Now()
			e, err := stream.Recv()
			if err != nil {
				return err
			}
			isDoubtful := heard.isDoubtful(asked, s.o.opt.Clock.Now())
			switch ev := e.GetEvent().(type) {
			case *proto.SidecarEvent_Switched:
				if isDoubtful {
					select {
					case <-ctx.Done(): // its process is dead
						return ctx.Err()
					case <-s.o.opt.Clock.After(doubt):
					}
				}
				fence := &proto.Fence{Stream: string(s.o.cfg.Stream), Term: uint64(s.o.held.Term())}
				s.switches.pass(box, fence, ev.Switched)
			case *proto.SidecarEvent_Join:
				s.o.opt.Fail.Hit("orchestrator/join/before")
			case *proto.SidecarEvent_Commit:
				s.o.opt.Fail.Hit("orchestrator/commit/before")
			case *proto.SidecarEvent_Saved:
				s.o.opt.Fail.Hit("orchestrator/saved/before")
			case *proto.SidecarEvent_Left:
				s.o.opt.Fail.Hit("orchestrator/left/before")
			}
			return s.o.post(ctx, func(m *Machine) { m.SidecarEvent(box, e) })
		})
}

// A report of a sidecar waits for doubt if it comes so soon after a silence of the sidecar itself. Sidecars send
// figures more often than silentFor. If the link of their host is cut, their messages come when the link is back, and
// the end of a process that died meanwhile comes right behind them. Its verdicts must not move the stripes of healthy
// loaders.
const (
	silentFor = time.Second
	doubt     = 250 * time.Millisecond
)

// hearing knows when a sidecar was silent. It belongs to one goroutine.
type hearing struct{ silent time.Time } // the end of the newest silence

// isDoubtful observes a message that was awaited from a time on. It reports whether the sidecar was silent shortly
// before. The time that the loop took for earlier messages is no silence.
func (h *hearing) isDoubtful(asked, now time.Time) bool {
	if now.Sub(asked) >= silentFor {
		h.silent = now
	}
	return now.Sub(h.silent) < doubt
}

// switches informs all sidecars at once that one of them has switched a stripe to its standby. The loop may be writing
// to journals meanwhile, which takes long on a busy disk, and its directory of loaders comes after that. No record is
// needed: the standby's term was granted, and a sidecar may switch to it at any time.
type switches struct {
	mu    sync.Mutex
	to    map[string]*outbox      // of the connected sidecars, by name
	terms map[facts.Stripe]uint64 // the newest that was passed on: each sidecar reports a switch
}

// mostStripes bounds the remembered terms. Without one, a switch is passed on again, which changes nothing.
const mostStripes = 1 << 16

// join adds a sidecar, and removes its predecessor.
func (s *switches) join(name string, box *outbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.to[name] = box
}

// leave removes a sidecar, unless another one has its place.
func (s *switches) leave(name string, box *outbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.to[name] == box {
		delete(s.to, name)
	}
}

// pass passes the switch of a connected sidecar on.
func (s *switches) pass(from *outbox, fence *proto.Fence, of *proto.Switched) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := facts.Stripe{Source: of.GetSource(), Index: of.GetStripe()}
	if of.GetTerm() <= s.terms[key] {
		return
	}
	var others []*outbox
	for _, box := range s.to {
		if box != from {
			others = append(others, box)
		}
	}
	if len(others) == len(s.to) { // its sender is not connected
		return
	}
	if len(s.terms) >= mostStripes {
		clear(s.terms)
	}
	s.terms[key] = of.GetTerm()
	order := &proto.SidecarOrder{Fence: fence, Order: &proto.SidecarOrder_Switched{Switched: of}}
	for _, box := range others {
		box.Send(order)
	}
}

// Follow carries the journal to one follower until its stream ends.
func (s *Server) Follow(stream proto.Orchestrator_FollowServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	hello := first.GetHello()
	if hello == nil {
		return wire.ToStatus(millrace.Errorf(millrace.ErrInvalid, "the first message of a follower is its hello"))
	}
	if err := roster.CheckVersion("the follower on "+hello.Host, hello.Version, s.o.cfg.By); err != nil {
		return wire.ToStatus(err)
	}
	if s.o.copies == nil {
		return wire.ToStatus(millrace.Errorf(millrace.ErrInvalid, "the run has one host, so its journal has no copies"))
	}
	return wire.ToStatus(s.o.copies.Serve(hello, stream, s.o.stopped))
}

// both runs a stream's two directions and ends when either does.
func (s *Server) both(
	ctx context.Context,
	box *outbox,
	send func(any) error,
	receive func(context.Context) error,
) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return box.drain(ctx, s.o.stopped, send) })
	// Receiving ends with the stream, which ends when this handler returns: its goroutine is not waited for.
	received := make(chan error, 1)
	go func() {
		for {
			if err := receive(ctx); err != nil {
				received <- err
				return
			}
		}
	}()
	group.Go(func() error {
		select {
		case err := <-received:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	return group.Wait()
}

// ask runs f in the loop and waits for its answer.
func (s *Server) ask(ctx context.Context, f func(*Machine) error) error {
	answer := make(chan error, 1)
	if err := s.o.post(ctx, func(m *Machine) { answer <- f(m) }); err != nil {
		return wire.ToStatus(err)
	}
	select {
	case err := <-answer:
		return wire.ToStatus(err)
	case <-s.o.stopped:
		return wire.ToStatus(errStopped)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Mix changes the mixture. It answers when the change is durable, or refuses it.
func (s *Server) Mix(ctx context.Context, request *proto.MixRequest) (*proto.MixReply, error) {
	s.o.opt.Fail.Hit("orchestrator/mix/before")
	var reply *proto.MixReply
	done := make(chan error, 1)
	err := s.o.post(ctx, func(m *Machine) {
		m.Mix(request, func(r *proto.MixReply, err error) { reply = r; done <- err })
	})
	if err != nil {
		return nil, wire.ToStatus(err)
	}
	select {
	case err = <-done:
	case <-s.o.stopped:
		err = errStopped
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.o.opt.Fail.Hit("orchestrator/mix/after")
	if err != nil {
		return nil, wire.ToStatus(err)
	}
	return reply, nil
}

// Status answers with the status of the run.
func (s *Server) Status(ctx context.Context, _ *proto.StatusRequest) (*proto.StatusReply, error) {
	var reply *proto.StatusReply
	err := s.ask(ctx, func(m *Machine) error { reply = m.Status(); return nil })
	return reply, err
}

// Servers serves several streams at one address. The authority of a call names the stream.
type Servers struct {
	proto.UnimplementedOrchestratorServer
	Of map[string]*Server // by authority
}

// of returns the server that a call is for.
func (s Servers) of(ctx context.Context) (*Server, error) {
	meta, _ := metadata.FromIncomingContext(ctx)
	for _, name := range meta.Get(":authority") {
		if server := s.Of[name]; server != nil {
			return server, nil
		}
	}
	return nil, wire.ToStatus(millrace.Errorf(millrace.ErrInvalid,
		"the run has no stream whose orchestrator is %v: start every host with the same mixture file",
		meta.Get(":authority")))
}

// pass calls a method of the server that a stream of messages is for.
func pass[S grpc.ServerStream](s Servers, stream S, method func(*Server, S) error) error {
	server, err := s.of(stream.Context())
	if err != nil {
		return err
	}
	return method(server, stream)
}

// Load implements proto.OrchestratorServer.
func (s Servers) Load(stream proto.Orchestrator_LoadServer) error {
	return pass(s, stream, (*Server).Load)
}

// Serve implements proto.OrchestratorServer.
func (s Servers) Serve(stream proto.Orchestrator_ServeServer) error {
	return pass(s, stream, (*Server).Serve)
}

// Follow implements proto.OrchestratorServer.
func (s Servers) Follow(stream proto.Orchestrator_FollowServer) error {
	return pass(s, stream, (*Server).Follow)
}

// Ledger implements proto.OrchestratorServer.
func (s Servers) Ledger(request *proto.LedgerRequest, stream grpc.ServerStreamingServer[proto.LedgerReply]) error {
	return pass(s, stream, func(server *Server, stream grpc.ServerStreamingServer[proto.LedgerReply]) error {
		return server.Ledger(request, stream)
	})
}

// Mix implements proto.OrchestratorServer.
func (s Servers) Mix(ctx context.Context, request *proto.MixRequest) (*proto.MixReply, error) {
	server, err := s.of(ctx)
	if err != nil {
		return nil, err
	}
	return server.Mix(ctx, request)
}

// Status implements proto.OrchestratorServer.
func (s Servers) Status(ctx context.Context, request *proto.StatusRequest) (*proto.StatusReply, error) {
	server, err := s.of(ctx)
	if err != nil {
		return nil, err
	}
	return server.Status(ctx, request)
}

// outbox is a Session. Messages wait in it, in order, for the stream that carries them. The loop never blocks on a slow
// role. The runway bounds the messages that can wait.
type outbox struct {
	mu    sync.Mutex
	queue []any
	ready chan struct{} // holds one token while the queue is not empty
}

func newOutbox() *outbox { return &outbox{ready: make(chan struct{}, 1)} }

// Send implements Session.
func (b *outbox) Send(msg any) {
	b.mu.Lock()
	b.queue = append(b.queue, msg)
	b.mu.Unlock()
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

// drain carries messages until ctx ends or send fails. Once stopped, it carries the last messages and ends with
// errStopped. It is the stream's only sender.
func (b *outbox) drain(ctx context.Context, stopped <-chan struct{}, send func(any) error) error {
	for {
		over := false
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-b.ready:
		case <-stopped:
			over = true
		}
		b.mu.Lock()
		queue := b.queue
		b.queue = nil
		b.mu.Unlock()
		for _, msg := range queue {
			if err := send(msg); err != nil {
				return err
			}
		}
		if over {
			return errStopped
		}
	}
}
