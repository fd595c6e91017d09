package sidecar

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sync/errgroup"

	"millrace"
)

const (
	// greetWithin is how long a client may take from connect to HELLO.
	greetWithin = 10 * time.Second
	// partWithin is how long a client has to read why it was refused.
	partWithin = 2 * time.Second
)

// accept serves one rank's socket until the socket is closed, and returns after its connections.
func (s *Server) accept(ctx context.Context, at *claim, l *socket) {
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
func (s *Server) serve(ctx context.Context, at *claim, c *net.UnixConn) {
	defer c.Close()
	p, err := peerOf(c, s.config.UIDs)
	if err != nil {
		s.refuse(at, 0, c, errProtocol, err)
		return
	}
	var watch errgroup.Group
	defer func() { p.close(); _ = watch.Wait() }()
	stop := context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Now()) })
	start, err := s.greet(c, at.number)
	stop()
	if errors.Is(err, errNothing) || ctx.Err() != nil {
		return // somebody looked whether the socket accepts
	}
	if err != nil {
		s.refuse(at, p.pid, c, kindOf(err), err)
		return
	}
	if start.Kind != StartContinue {
		for _, other := range s.claims {
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
	defer at.release()
	watch.Go(func() error {
		if p.wait() {
			at.leave(session)
			_ = c.CloseRead() // the reader takes what the client had sent, then sees the end
		}
		return nil
	})
	session.run(ctx, start, func() { at.leave(session) })
}

// turnAway refuses a client that did not get the claim. A sidecar that is leaving says why the run failed, or nothing: a client that
// hears nothing comes again and asks the next sidecar.
func (s *Server) turnAway(ctx context.Context, at *claim, p *peer, c *net.UnixConn, err error) {
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

// kindOf is the kind of ERROR that answers a HELLO.
func kindOf(err error) errorKind {
	var start *StartError
	if errors.As(err, &start) {
		return errStart
	}
	return errProtocol
}

// greet reads HELLO on the socket of the rank with the given number.
func (s *Server) greet(c *net.UnixConn, number int) (Start, error) {
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
		if err := s.isServed(h.rank, number); err != nil {
			return Start{}, err
		}
		return parseHello(h, body)
	}
}

// isServed compares the rank that a client wants with the number of the socket that it came to. A client whose own socket is missing
// asks at another one whether the run serves its rank at all: *StartError says that it does not.
func (s *Server) isServed(rank uint32, number int) error {
	n := len(s.claims)
	switch {
	case rank == anyRank || rank == uint32(number):
		return nil
	case rank < uint32(n):
		return fmt.Errorf("the client wants rank %d, this socket serves rank %d", rank, number)
	}
	serves := "rank 0 alone"
	if n > 1 {
		serves = fmt.Sprintf("ranks 0 to %d", n-1)
	}
	return &StartError{Reason: fmt.Sprintf("rank %d: this run serves %s; start it with millrace up --ranks %d, or check LOCAL_RANK and the socket's name",
		rank, serves, rank+1)}
}

// refuse tells a client why it is not served, and waits a moment until it has read that.
func (s *Server) refuse(at *claim, pid int32, c *net.UnixConn, kind errorKind, err error) {
	s.config.Log.Warn("a client was turned away", "rank", at.rank, "pid", pid, "reason", err)
	if s.config.Observe != nil {
		s.config.Observe(Event{Kind: Refused, Slot: millrace.Slot{Rank: at.rank}, Pid: int(pid), Reason: err.Error()})
	}
	if sendMessage(c, nil, errorMessage(kind, err.Error())) != nil || c.CloseWrite() != nil {
		return
	}
	_ = c.SetReadDeadline(time.Now().Add(partWithin)) // the client hangs up when it has read why
	buf := make([]byte, maxDatagram)
	for err = nil; !errors.Is(err, errGone); {
		_, _, err = receive(c, buf)
	}
}
