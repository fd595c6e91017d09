package sidecar

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"millrace"
	"millrace/sidecar/ring"
)

// Config is what a sidecar is made of.
type Config struct {
	Dir      string          // where the sockets stand: rank-<r>.sock, r from 0 to len(Ranks)-1
	Ranks    []millrace.Rank // the rank of the world behind each socket
	Upstream Upstream
	Fetcher  Fetcher
	Frames   uint32       // frames of a ring; 0: 3 from 1 MiB up, else 8
	Ahead    int          // steps fetched before they are needed; 0: 2
	RingSize int64        // most bytes of one rank's ring; 0: no bound
	UIDs     []uint32     // users whose processes may connect; empty: our own
	Ready    func()       // called once when every socket accepts; may be nil
	Observe  func(Event)  // called for every event, from many goroutines; may be nil
	Log      *slog.Logger // nil: slog.Default()
}

const defaultAhead = 2

func (c Config) withDefaults() Config {
	if c.Ahead == 0 {
		c.Ahead = defaultAhead
	}
	if len(c.UIDs) == 0 {
		c.UIDs = []uint32{uint32(os.Geteuid())}
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c
}

func (c Config) validate() error {
	switch {
	case len(c.Ranks) == 0:
		return errors.New("make sidecar: no ranks to serve")
	case c.Upstream == nil || c.Fetcher == nil:
		return errors.New("make sidecar: it needs an upstream and a fetcher")
	case c.Frames == 1:
		return errors.New("make sidecar: one frame is not enough, the trainer holds one while the next is built")
	}
	return nil
}

// Server serves the trainer ranks of one host.
type Server struct {
	config Config
	seats  []*seat

	mu       sync.Mutex
	ctx      context.Context // of Run: what an attempt's steps live in
	give     context.CancelCauseFunc
	attempts map[millrace.Attempt]*steps
}

// New returns a server that does nothing before Run.
func New(c Config) (*Server, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	s := &Server{config: c.withDefaults(), attempts: map[millrace.Attempt]*steps{}}
	for i, r := range c.Ranks {
		s.seats = append(s.seats, newSeat(i, r))
	}
	return s, nil
}

// Run serves until ctx ends, and then takes its sockets away. Where ctx ends with a *RunError as its cause, every trainer is told.
// It returns an error only where the sockets cannot be made, or where this process cannot serve: its clients are told that another comes.
func (s *Server) Run(ctx context.Context) error {
	ctx, give := context.WithCancelCause(ctx)
	defer give(nil)
	var sockets []*socket
	defer func() {
		for _, l := range sockets {
			_ = l.remove()
		}
	}()
	for i := range s.seats {
		l, err := listen(filepath.Join(s.config.Dir, "rank-"+strconv.Itoa(i)+".sock"))
		if err != nil {
			return err
		}
		sockets = append(sockets, l)
	}
	s.mu.Lock()
	s.ctx, s.give = ctx, give
	s.mu.Unlock()
	var g errgroup.Group
	for i, l := range sockets {
		g.Go(func() error { s.accept(ctx, s.seats[i], l); return nil })
	}
	g.Go(func() error {
		<-ctx.Done()
		for _, l := range sockets {
			_ = l.remove()
		}
		return nil
	})
	if s.config.Ready != nil {
		s.config.Ready()
	}
	_ = g.Wait()
	s.closeAttempts()
	if cause := context.Cause(ctx); errors.Is(cause, ring.ErrMemory) {
		return cause
	}
	return nil
}

// broken has the server leave, for another process to take its place.
func (s *Server) broken(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.give(err)
}

// accept serves one rank's socket until it is closed, and returns after its connections.
func (s *Server) accept(ctx context.Context, at *seat, l *socket) {
	var g errgroup.Group
	g.SetLimit(backlog)
	for {
		c, err := l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			break
		}
		if err != nil {
			s.config.Log.Error("accept a trainer", "rank", at.rank, "error", err)
			select { // out of descriptors, for instance: try again soon
			case <-time.After(100 * time.Millisecond):
				continue
			case <-ctx.Done():
			}
			break
		}
		g.Go(func() error { s.serve(ctx, at, c); return nil })
	}
	_ = g.Wait()
}

// serve is the whole life of one connection.
func (s *Server) serve(ctx context.Context, at *seat, c *net.UnixConn) {
	defer c.Close()
	p, err := peerOf(c, s.config.UIDs)
	if err != nil {
		s.refuse(at, 0, c, errProtocol, err)
		return
	}
	var watch errgroup.Group
	defer func() { p.close(); _ = watch.Wait() }()
	stop := context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Now()) })
	start, err := greet(c, at.number)
	stop()
	if errors.Is(err, errNothing) || ctx.Err() != nil {
		return // somebody looked whether the socket accepts
	}
	if err != nil {
		s.refuse(at, p.pid, c, errProtocol, err)
		return
	}
	if start.Kind != StartContinue {
		for _, other := range s.seats {
			if other != at {
				other.settle(ctx)
			}
		}
	}
	session := newSession(s, at.rank, c, p)
	if err := at.take(ctx, session, start.Kind == StartContinue); err != nil {
		s.turnAway(ctx, at, p, c, err)
		return
	}
	defer at.give()
	watch.Go(func() error {
		if p.wait() {
			at.leave(session)
			_ = c.CloseRead() // what was sent is still read, then comes the end
		}
		return nil
	})
	session.run(ctx, start, func() { at.leave(session) })
}

// turnAway refuses a client its seat. A sidecar that leaves says at most why the run failed: a client that hears nothing comes again, and
// asks whoever serves then.
func (s *Server) turnAway(ctx context.Context, at *seat, p *peer, c *net.UnixConn, err error) {
	var run *RunError
	switch {
	case errors.As(err, &run):
		s.refuse(at, p.pid, c, errRun, run)
	case ctx.Err() == nil:
		s.refuse(at, p.pid, c, errBusy, err)
	}
}

// errNothing: a client came and left without a word.
var errNothing = errors.New("no HELLO")

// greet reads HELLO.
func greet(c *net.UnixConn, number int) (Start, error) {
	if err := c.SetReadDeadline(time.Now().Add(greetWithin)); err != nil {
		return Start{}, err
	}
	defer func() { _ = c.SetReadDeadline(time.Time{}) }()
	buf := make([]byte, maxDatagram)
	var body []byte
	for {
		h, part, err := receive(c, buf)
		if errors.Is(err, errGone) {
			return Start{}, errNothing
		}
		if err != nil {
			return Start{}, fmt.Errorf("read HELLO: %w", err)
		}
		if h.kind != msgHello || len(body)+len(part) > maxBody {
			return Start{}, fmt.Errorf("read HELLO: message %d of %d bytes", h.kind, len(body)+len(part))
		}
		body = append(body, part...)
		if h.flags&flagMore != 0 {
			continue
		}
		if h.rank != anyRank && h.rank != uint32(number) {
			return Start{}, fmt.Errorf("the client wants rank %d, this socket serves rank %d", h.rank, number)
		}
		return parseHello(h, body)
	}
}

func (s *Server) refuse(at *seat, pid int32, c *net.UnixConn, kind errorKind, err error) {
	s.config.Log.Warn("a client was turned away", "rank", at.rank, "pid", pid, "reason", err)
	if s.config.Observe != nil {
		s.config.Observe(Event{Kind: Refused, Slot: millrace.Slot{Rank: at.rank}, Pid: int(pid), Reason: err.Error()})
	}
	if sendMessage(c, nil, errorMessage(kind, err.Error())) != nil || c.CloseWrite() != nil {
		return
	}
	// The client hangs up when it has read why.
	_ = c.SetReadDeadline(time.Now().Add(partWithin))
	buf := make([]byte, maxDatagram)
	for err = nil; !errors.Is(err, errGone); {
		_, _, err = receive(c, buf)
	}
}

// sharing is a rank's part in its attempt's steps.
type sharing struct {
	server *Server
	steps  *steps
	rank   millrace.Rank
}

// share returns the attempt's steps, which all ranks of the host have in common.
func (s *Server) share(rank millrace.Rank, b Begin) sharing {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.attempts[b.Attempt]
	if st == nil {
		st = newSteps(s.ctx, s.config.Upstream, s.config.Fetcher, s.config.Ranks, b, s.config.Ahead)
		s.attempts[b.Attempt] = st
	}
	st.enter(rank, b.Step)
	return sharing{s, st, rank}
}

func (h sharing) leave() {
	if h.steps == nil {
		return
	}
	h.server.mu.Lock()
	last := h.steps.leave(h.rank)
	if last {
		delete(h.server.attempts, h.steps.attempt)
	}
	h.server.mu.Unlock()
	if last {
		h.steps.close()
	}
}

func (s *Server) closeAttempts() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.attempts {
		st.close()
	}
}
