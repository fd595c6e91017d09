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

// greetWithin limits the time from a client's connect to its HELLO.
const greetWithin = 10 * time.Second

// door accepts the clients of the host's sockets. It serves or refuses each client.
type door struct {
	config   Config
	claims   []*claim
	attempts *attempts
	giveUp   func(error) // ends the server, so that another process replaces this one
}

// open serves one rank's socket until the socket is closed, and returns after all its connections have ended.
func (d *door) open(ctx context.Context, at *claim, l *socket) {
	var g errgroup.Group
	g.SetLimit(backlog)
	tell := func(err error) {
		d.config.Log.Warn("the socket was removed from outside and is made again", "rank", at.rank, "error", err)
	}
	for {
		c, err := l.accept(tell)
		if errors.Is(err, net.ErrClosed) {
			break
		}
		if err != nil {
			d.config.Log.Error("accept a trainer", "rank", at.rank, "error", err)
			select { // for example, the process has no free descriptor: try again soon
			case <-time.After(100 * time.Millisecond):
				continue
			case <-ctx.Done():
			}
			break
		}
		g.Go(func() error { d.serve(ctx, at, c); return nil })
	}
	_ = g.Wait()
}

// serve serves one connection from its first message to its end.
func (d *door) serve(ctx context.Context, at *claim, c *net.UnixConn) {
	defer c.Close()
	p, err := peerOf(c, d.config.UIDs)
	if err != nil {
		d.refuse(at, 0, c, errProtocol, err)
		return
	}
	var watch errgroup.Group
	defer func() { p.close(); _ = watch.Wait() }()
	stop := context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Now()) })
	start, err := d.greet(c, at.rank)
	stop()
	if errors.Is(err, errNothing) || ctx.Err() != nil {
		return // the client only checked whether the socket accepts
	}
	if err != nil {
		d.refuse(at, p.pid, c, kindOf(err), err)
		return
	}
	if start.Kind != millrace.StartContinue {
		for _, other := range d.claims {
			if other != at {
				other.settle(ctx)
			}
		}
	}
	session := newSession(d.config, d.attempts, d.giveUp, at.rank, c, p)
	if err := at.take(ctx, session, start.Kind == millrace.StartContinue); err != nil {
		d.turnAway(ctx, at, p, c, err)
		return
	}
	defer at.release()
	if w := d.config.Watch; w != nil {
		w.Arrived(at.rank, at.number, start.Seat)
		defer w.Left(at.rank)
	}
	watch.Go(func() error {
		if p.wait() {
			at.noteLeaving(session)
			_ = c.CloseRead() // the reader still gets the messages that the client had sent, then the end
		}
		return nil
	})
	session.run(ctx, start, func() { at.noteLeaving(session) })
}

// turnAway refuses a client that did not get the claim. If the run failed, it sends the reason. If this sidecar leaves
// and the run continues, it sends nothing, and the client connects to the next sidecar.
func (d *door) turnAway(ctx context.Context, at *claim, p *peer, c *net.UnixConn, err error) {
	var run *RunError
	switch {
	case errors.As(err, &run):
		d.refuse(at, p.pid, c, errRun, run)
	case ctx.Err() == nil:
		d.refuse(at, p.pid, c, errBusy, err)
	}
}

// errNothing is the error if a client leaves without a HELLO.
var errNothing = errors.New("no HELLO")

// kindOf returns the kind of the ERROR that answers a HELLO.
func kindOf(err error) errorKind {
	var start *StartError
	if errors.As(err, &start) {
		return errStart
	}
	return errProtocol
}

// greet reads HELLO on the socket of a rank.
func (d *door) greet(c *net.UnixConn, own millrace.Rank) (Start, error) {
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
		if h.version != protocolVersion {
			return Start{}, otherProtocol(h, part, d.config.Version)
		}
		if h.kind != msgHello || len(body)+len(part) > maxBody {
			return Start{}, fmt.Errorf("read HELLO: message %d of %d bytes", h.kind, len(body)+len(part))
		}
		body = append(body, part...)
		if h.flags&flagMore != 0 {
			continue
		}
		if err := d.checkRank(h.rank, own); err != nil {
			return Start{}, err
		}
		return parseHello(h, body)
	}
}

// checkRank refuses a client whose rank is not that of the socket. A client whose own socket does not exist connects to
// another one, to learn whether this host serves its rank. If not, the error is a *StartError.
func (d *door) checkRank(rank uint32, own millrace.Rank) error {
	first, last := d.claims[0].rank, d.claims[len(d.claims)-1].rank
	switch {
	case rank == anyRank || rank == uint32(own):
		return nil
	case uint32(first) <= rank && rank <= uint32(last):
		return fmt.Errorf("a client of rank %d connected to rank-%d.sock: connect to rank-%d.sock", rank, own, rank)
	}
	serves := fmt.Sprintf("rank %d alone", first)
	if first < last {
		serves = fmt.Sprintf("ranks %d to %d", first, last)
	}
	if d.config.Limited != "" {
		return &StartError{Reason: fmt.Sprintf("rank %d: stream %s is for %s: raise `ranks` of the stream in the "+
			"mixture file, or do not connect this rank to it", rank, d.config.Limited, serves)}
	}
	if d.config.IsSpread {
		return &StartError{Reason: fmt.Sprintf("rank %d: this host serves %s of the run; check RANK and the socket's "+
			"name", rank, serves)}
	}
	return &StartError{Reason: fmt.Sprintf("rank %d: this run serves %s; start it with millrace up --ranks %d, "+
		"or check LOCAL_RANK and the socket's name", rank, serves, rank+1)}
}

// refuse sends a client the reason of its refusal. It waits at most partWithin until the client has read the reason.
func (d *door) refuse(at *claim, pid int32, c *net.UnixConn, kind errorKind, err error) {
	d.config.Log.Warn("a client was turned away", "rank", at.rank, "pid", pid, "reason", err)
	if d.config.Observe != nil {
		d.config.Observe(Event{Kind: Refused, Slot: millrace.Slot{Rank: at.rank}, Pid: int(pid), Reason: err.Error()})
	}
	if sendMessage(c, nil, errorMessage(kind, err.Error())) != nil || c.CloseWrite() != nil {
		return
	}
	_ = c.SetReadDeadline(time.Now().Add(partWithin)) // the client hangs up when it has read the reason
	buf := make([]byte, maxDatagram)
	for err = nil; !errors.Is(err, errGone); {
		_, _, err = receive(c, buf)
	}
}
