package sidecar

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"millrace"
	"millrace/sidecar/ring"
)

// session is one connection: the shell around its delivery.
type session struct {
	server  *Server
	rank    millrace.Rank
	conn    *net.UnixConn
	peer    *peer
	order   delivery
	pool    *ring.Pool
	forward *forward
	doing   atomic.Pointer[string]
	events  chan event
	over    chan struct{} // closed when the loop no longer listens
	wire    []byte        // send buffer
	told    *ring.Ring    // the newest ring the client knows
	shared  sharing       // the attempt's steps, once begun
	g       errgroup.Group
	pushed  atomic.Pointer[millrace.Slot] // for Status
	leaving func()                        // called as soon as the trainer can be replaced; more than once
}

func newSession(s *Server, rank millrace.Rank, c *net.UnixConn, p *peer) *session {
	return &session{
		server: s, rank: rank, conn: c, peer: p, order: delivery{rank: rank},
		pool:    ring.NewPool(s.config.Frames, s.config.RingSize),
		forward: newForward(s.config.Upstream, rank),
		events:  make(chan event, 64), over: make(chan struct{}),
		wire: make([]byte, 0, maxDatagram),
	}
}

// run serves the connection until the trainer is gone or told to go. In the end the memory is given back first; only then may the
// commits that are still on their way hold it up. leaving is called as soon as the trainer can be replaced.
func (s *session) run(ctx context.Context, start Start, leaving func()) {
	s.leaving = leaving
	live, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.g.Go(func() error { s.read(); return nil })
	var carried errgroup.Group
	lasting, end := lingering(ctx)
	defer end()
	carried.Go(func() error {
		return s.forward.run(lasting, func(attempt millrace.Attempt, below millrace.Step) {
			s.notice(Event{Kind: Committed, Slot: millrace.Slot{Attempt: attempt, Step: below - 1}})
			s.post(forwarded{below})
		})
	})
	s.leaving = leaving
	s.loop(live, start)
	leaving()
	cancel(nil)
	_ = s.conn.Close()
	close(s.over)
	_ = s.g.Wait()
	if err := s.pool.Close(); err != nil {
		s.server.config.Log.Error("give back the shared memory of a rank", "rank", s.rank, "error", err)
	}
	s.shared.leave()
	s.notice(Event{Kind: Gone})
	s.forward.finish()
	if err := carried.Wait(); err != nil && ctx.Err() == nil {
		s.server.config.Log.Error("commit", "rank", s.rank, "error", err)
	}
	s.server.config.Upstream.Left(s.rank)
}

// loop feeds the state machine until the connection is over.
func (s *session) loop(ctx context.Context, start Start) {
	if !s.act(ctx, s.order.on(helloed{start})) {
		return
	}
	for {
		select {
		case e := <-s.events:
			if _, gone := e.(gone); gone || !s.act(ctx, s.order.on(e)) {
				return
			}
		case <-ctx.Done():
			var run *RunError
			if errors.As(context.Cause(ctx), &run) && !s.act(ctx, s.order.fail(errRun, run)) {
				return // it has parted
			}
			if run == nil && s.order.phase == serving && !errors.Is(context.Cause(ctx), ErrAlone) {
				s.leave()
			}
			_ = s.conn.CloseRead() // what was sent is still read, then comes the end
			s.part(ctx)
			return
		}
	}
}

// leave tells a client that this sidecar goes and another comes: the client has what was pushed, and connects anew for the rest.
func (s *session) leave() {
	s.notice(Event{Kind: Leaving})
	_ = s.sendOut(leavingMessage())
	s.notice(Event{Kind: Parted})
}

// gone: nothing more will come from the client.
type gone struct{}

// act carries out actions in order; false ends the connection.
func (s *session) act(ctx context.Context, actions []action) bool {
	for _, a := range actions {
		var err error
		switch a := a.(type) {
		case join:
			s.join(ctx, a.start)
		case feed:
			err = s.feed(ctx, a.begin)
		case send:
			s.tell(a.message)
			err = s.sendOut(a.message)
		case push:
			err = s.push(a.batch)
		case release:
			s.release(a)
		case commit:
			s.forward.commit(s.order.begin.Attempt, a.step)
		case saved:
			s.notice(Event{Kind: Saved, Slot: millrace.Slot{Attempt: s.order.begin.Attempt, Step: a.step}})
			s.forward.save(s.order.begin.Attempt, a.step)
		case report:
			s.server.config.Upstream.Reported(millrace.Rank(s.order.begin.Topology.Coordinates(s.rank).DP), a.report)
		case status:
			err = s.sendOut(message{header: header{kind: msgStatus}, body: []byte(s.waiting())})
		case hangUp:
			s.leaving() // it may stay for a while to read why, and is in nobody's way
			_ = s.conn.CloseWrite()
			s.part(ctx)
			return false
		}
		if err != nil {
			s.part(ctx) // the client is gone; what it said before still counts
			return false
		}
	}
	return true
}

func (s *session) join(ctx context.Context, start Start) {
	s.notice(Event{Kind: Joined, Reason: string(start.Kind)})
	text := "every rank to connect and say where it starts"
	s.doing.Store(&text)
	s.g.Go(func() error {
		b, err := s.server.config.Upstream.Join(ctx, s.rank, start)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			s.post(refused{reason(err)})
		default:
			s.post(begun{b})
		}
		return nil
	})
}

func (s *session) feed(ctx context.Context, b Begin) error {
	s.notice(Event{Kind: Began, Slot: millrace.Slot{Attempt: b.Attempt, Step: b.Step, Microbatch: b.Microbatch}})
	s.shared = s.server.share(s.rank, b)
	f := &feeder{
		rank: s.rank, share: b.share(s.rank), begin: b, steps: s.shared.steps, pool: s.pool, doing: &s.doing,
		notice: s.notice, out: s.post, broken: s.server.broken,
	}
	s.g.Go(func() error { f.run(ctx); return nil })
	s.g.Go(func() error { s.alarm(ctx); return nil })
	return nil
}

// alarm passes on what the run lacks, whenever that changes, until ctx ends.
func (s *session) alarm(ctx context.Context) {
	version := uint64(0)
	for {
		alerts, now, err := s.server.config.Upstream.Alerts(ctx, version)
		if err != nil {
			return
		}
		version = now
		s.post(alerted{alerts})
	}
}

func (s *session) push(b filled) error {
	m, err := b.message()
	if err != nil {
		return err
	}
	if b.frame.Ring != s.told {
		if err := s.sendOut(ringMessage(b.frame.Ring)); err != nil {
			return err
		}
		s.told = b.frame.Ring
	}
	s.notice(Event{Kind: Pushed, Slot: b.slot, Generation: b.frame.Generation})
	s.pushed.Store(&b.slot)
	s.pool.Lend(b.frame)
	return s.sendOut(m)
}

func (s *session) release(r release) {
	slot := millrace.Slot{Attempt: s.order.begin.Attempt}
	if err := s.pool.Release(r.ring, r.frame, r.generation); err != nil {
		s.notice(Event{Kind: Stale, Slot: slot, Generation: r.generation, Reason: err.Error()})
		return
	}
	s.notice(Event{Kind: Released, Slot: slot, Generation: r.generation})
}

// tell records how the run ends for this rank.
func (s *session) tell(m message) {
	switch m.header.kind {
	case msgEnd:
		s.notice(Event{Kind: Ended, Slot: millrace.Slot{Attempt: m.header.attempt, Step: m.header.step}})
	case msgError:
		s.notice(Event{Kind: Failed, Reason: string(m.body)})
	}
}

func (s *session) waiting() string {
	text := ""
	if t := s.doing.Load(); t != nil {
		text = *t
	}
	if more := s.server.config.Upstream.Waiting(); more != "" {
		text += " (" + more + ")"
	}
	return text
}

// post hands an event to the loop, or drops it when there is no loop any more.
func (s *session) post(e event) {
	select {
	case s.events <- e:
	case <-s.over:
	}
}

func (s *session) notice(e Event) {
	if s.server.config.Observe == nil {
		return
	}
	e.Slot.Rank, e.Pid = s.rank, int(s.peer.pid)
	s.server.config.Observe(e)
}

// read turns the client's datagrams into events until it is gone. The end of its process counts as its end even where a forked
// child keeps the socket open: what it had sent is still read.
func (s *session) read() {
	defer s.post(gone{})
	buf := make([]byte, maxDatagram)
	for {
		h, body, err := receive(s.conn, buf)
		if errors.Is(err, errGone) {
			return
		}
		if err != nil {
			s.post(malformed{err})
			continue
		}
		if h.kind != msgReport {
			s.post(received{h})
		} else if r, err := parseReport(h, body); err != nil {
			s.post(malformed{err})
		} else {
			s.post(measured{r})
		}
	}
}

// sendOut sends a message, in as many datagrams as its body needs; a ring's memfd goes with the first.
func (s *session) sendOut(m message) error { return sendMessage(s.conn, s.wire, m) }

// part hears the client out and lets it read what was sent: a close with unread messages would reset it. Nothing is sent any more.
func (s *session) part(ctx context.Context) {
	_ = s.conn.SetReadDeadline(time.Now().Add(partWithin))
	for e := range s.events { // ends: read posts gone
		switch e.(type) {
		case gone:
			return
		case received:
			for _, a := range s.order.on(e) {
				switch a.(type) {
				case commit, saved:
					s.act(ctx, []action{a})
				}
			}
		}
	}
}

// hasHungUp reports whether the client has closed its end or its process has ended.
func (s *session) hasHungUp() bool { return s.peer.exited() || hasHungUp(s.conn) }
