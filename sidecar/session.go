package sidecar

import (
	"cmp"
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"millrace"
	"millrace/internal/activity"
	"millrace/proto"
	"millrace/sidecar/ring"
)

// session serves one connection. It gives events to the connection's delivery and carries out its actions.
type session struct {
	config   Config
	attempts *attempts
	giveUp   func(error) // called if this process gets no memory
	rank     millrace.Rank
	conn     *net.UnixConn
	peer     *peer
	order    delivery
	pool     *ring.Pool
	forward  *forward
	doing    atomic.Pointer[activity.Cause] // the feeder's current wait, for STATUS
	events   chan event
	over     chan struct{} // closed after the loop has ended
	wire     []byte        // send buffer
	sentRing *ring.Ring    // the ring of the last RING message
	shared   sharing       // the attempt's steps, once begun
	g        errgroup.Group
	leaving  func() // called as soon as the trainer is gone or refused, perhaps more than once
}

func newSession(
	c Config, attempts *attempts, giveUp func(error), rank millrace.Rank, conn *net.UnixConn, p *peer,
) *session {
	return &session{
		config: c, attempts: attempts, giveUp: giveUp, rank: rank, conn: conn, peer: p, order: delivery{rank: rank},
		pool:    ring.NewPool(c.Frames, c.RingSize),
		forward: newForward(c.Upstream, rank),
		events:  make(chan event, 64), over: make(chan struct{}),
		wire: make([]byte, 0, maxDatagram),
	}
}

// run serves the connection until the trainer is gone or refused, or ctx ends. It then gives the memory back before it
// waits for commits that are still on their way. It calls leaving as soon as the trainer is gone or refused.
func (s *session) run(ctx context.Context, start Start, leaving func()) {
	live, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.g.Go(func() error { s.read(); return nil })
	var sending errgroup.Group
	lasting, end := lingering(ctx)
	defer end()
	sending.Go(func() error {
		return s.forward.send(lasting, func(attempt millrace.Attempt, below millrace.Step) {
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
		s.config.Log.Error("give back the shared memory of a rank", "rank", s.rank, "error", err)
	}
	s.shared.end()
	s.notice(Event{Kind: Gone})
	s.forward.finish()
	if err := sending.Wait(); err != nil && ctx.Err() == nil {
		s.config.Log.Error("commit", "rank", s.rank, "error", err)
	}
	s.config.Gauge.Left(s.rank)
	s.config.Upstream.Left(s.rank)
}

// loop gives events to the state machine until the connection ends.
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
				return // the connection has ended
			}
			if run == nil && s.order.phase == serving && !errors.Is(context.Cause(ctx), ErrAlone) {
				s.announceLeaving()
			}
			_ = s.conn.CloseRead() // messages that the client has sent are still read, then comes the end
			s.hearOut(ctx)
			return
		}
	}
}

// announceLeaving sends LEAVING: this sidecar leaves and another one comes. The client uses the pushed batches and
// connects again for the rest.
func (s *session) announceLeaving() {
	s.notice(Event{Kind: Leaving})
	_ = s.sendOut(leavingMessage())
	s.notice(Event{Kind: Parted})
}

// gone is the event after the client's last message.
type gone struct{}

// act carries out actions in order. It returns false when the connection has to end.
func (s *session) act(ctx context.Context, actions []action) bool {
	for _, a := range actions {
		var err error
		switch a := a.(type) {
		case join:
			s.startJoin(ctx, a.start)
		case feed:
			s.startFeeder(ctx, a.begin)
		case send:
			s.noteEnd(a.message)
			err = s.sendOut(a.message)
		case push:
			err = s.pushBatch(a.batch)
		case release:
			s.takeBack(a)
		case commit:
			if waited, ok := a.header.waited(); ok {
				s.config.Gauge.Committed(s.rank, a.step+1, waited)
			}
			s.forward.commit(s.order.begin.Attempt, a.step)
		case saved:
			s.notice(Event{Kind: Saved, Slot: millrace.Slot{Attempt: s.order.begin.Attempt, Step: a.step}})
			s.forward.save(s.order.begin.Attempt, a.step)
		case forwardReport:
			s.config.Upstream.Reported(millrace.Rank(s.order.begin.Topology.Coordinates(s.rank).DP), a.report)
		case status:
			err = s.tell(a.header)
		case hangUp:
			s.leaving() // new clients wait for the rank while this one reads the reason
			_ = s.conn.CloseWrite()
			s.hearOut(ctx)
			return false
		}
		if err != nil {
			s.hearOut(ctx) // the client is gone; its earlier messages still count
			return false
		}
	}
	return true
}

// startJoin joins the run in the background and posts the answer.
func (s *session) startJoin(ctx context.Context, start Start) {
	s.notice(Event{Kind: Joined, Reason: string(start.Kind)})
	s.doing.Store(&activity.Cause{Kind: activity.Ranks, Text: "every rank to connect and say where it starts"})
	s.g.Go(func() error {
		b, err := s.config.Upstream.Join(ctx, s.rank, start)
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

// startFeeder starts to fill frames from the first batch of b on.
func (s *session) startFeeder(ctx context.Context, b Begin) {
	s.notice(Event{Kind: Began, Slot: millrace.Slot{Attempt: b.Attempt, Step: b.Step, Microbatch: b.Microbatch}})
	s.shared = s.attempts.share(s.rank, b, s.order.readOnly)
	f := &feeder{
		rank: s.rank, share: b.share(s.rank), begin: b, steps: s.shared.steps,
		memory: memory{s.pool, s.shared.member}, doing: &s.doing,
		observe: s.notice, out: s.post, giveUp: s.giveUp, meter: s.config.Meter.Source(""),
	}
	s.g.Go(func() error { f.fillAll(ctx); return nil })
	s.g.Go(func() error { s.alarm(ctx); return nil })
}

// alarm passes on the list of alerts each time it changes, until ctx ends.
func (s *session) alarm(ctx context.Context) {
	version := uint64(0)
	for {
		alerts, now, err := s.config.Upstream.Alerts(ctx, version)
		if err != nil {
			return
		}
		version = now
		s.post(alerted{alerts})
	}
}

// pushBatch sends the descriptor of a batch. If the batch is in a new ring, pushBatch sends the ring first.
func (s *session) pushBatch(b filled) error {
	m, err := b.message()
	if err != nil {
		return err
	}
	if b.frame.Ring != s.sentRing {
		if err := s.sendOut(ringMessage(b.frame.Ring)); err != nil {
			return err
		}
		s.sentRing = b.frame.Ring
	}
	s.notice(Event{Kind: Pushed, Slot: b.slot, Generation: b.frame.Generation})
	if !b.frame.Ring.Shared() {
		s.pool.Lend(b.frame)
	}
	s.config.Gauge.Delivered(s.rank)
	return s.sendOut(m)
}

// takeBack frees a frame that the trainer has released.
func (s *session) takeBack(r release) {
	slot := millrace.Slot{Attempt: s.order.begin.Attempt}
	err := memory{s.pool, s.shared.member}.release(r)
	if err != nil {
		s.notice(Event{Kind: Stale, Slot: slot, Generation: r.generation, Reason: err.Error()})
		return
	}
	s.notice(Event{Kind: Released, Slot: slot, Generation: r.generation})
}

// noteEnd writes an END or ERROR for the client to the event log.
func (s *session) noteEnd(m message) {
	switch m.header.kind {
	case msgEnd:
		s.notice(Event{Kind: Ended, Slot: millrace.Slot{Attempt: m.header.attempt, Step: m.header.step}})
	case msgError:
		s.notice(Event{Kind: Failed, Reason: string(m.body)})
	}
}

// tell answers a WAIT.
func (s *session) tell(asked header) error {
	cause := s.waiting()
	var fed *proto.Delivery
	if asked.flags&flagFed != 0 {
		fed = s.config.Upstream.Delivery()
	}
	if waited, ok := asked.waited(); ok && asked.flags&flagCause != 0 {
		s.config.Gauge.Waits(s.rank, waited, time.Duration(asked.frame)*time.Millisecond, cause)
	}
	m, err := statusMessage(asked.flags, cause, fed)
	if err != nil {
		return err
	}
	return s.sendOut(m)
}

// waiting returns the cause of the trainer's wait. While the feeder waits for a plan or tokens, upstream knows it.
func (s *session) waiting() activity.Cause {
	var cause activity.Cause
	if c := s.doing.Load(); c != nil {
		cause = *c
	}
	more := s.config.Upstream.Waiting()
	text, says := cause.Text, more.Text
	if cause.Kind == "" && says == "" && more.Kind != "" {
		says = more.Describe()
	}
	if cause.Kind == "" || cause.Kind == activity.Ranks && more.Text != "" {
		cause = cmp.Or(more, cause)
	}
	if cause.Text = text; says != "" {
		cause.Text += " (" + says + ")"
	}
	return cause
}

// post hands an event to the loop, or drops it if the loop has ended.
func (s *session) post(e event) {
	select {
	case s.events <- e:
	case <-s.over:
	}
}

func (s *session) notice(e Event) {
	if s.config.Observe == nil {
		return
	}
	e.Slot.Rank, e.Pid = s.rank, int(s.peer.pid)
	s.config.Observe(e)
}

// read turns the client's datagrams into events until the client is gone. A client is also gone when its process has
// exited and a forked child keeps the socket open. read still gets the datagrams that were sent before.
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
			s.noteWaited(h)
			s.post(received{h})
		} else if r, err := parseReport(h, body); err != nil {
			s.post(malformed{err})
		} else {
			s.post(measured{r})
		}
	}
}

// noteWaited passes on the trainer's waits. Clients before this field send 0.
func (s *session) noteWaited(h header) {
	waited, ok := h.waited()
	if w := s.config.Watch; w != nil && ok && (h.kind == msgCommit || h.kind == msgWait) {
		w.Waited(s.rank, waited)
	}
}

// sendOut sends a message in one or more datagrams. A ring's memfd goes with the first one.
func (s *session) sendOut(m message) error { return sendMessage(s.conn, s.wire, m) }

// hearOut carries out the commits and saves in the client's last messages, and ignores the rest. It waits at most
// partWithin for the client to read its own messages and hang up. A close with unread messages would reset the
// connection.
func (s *session) hearOut(ctx context.Context) {
	_ = s.conn.SetReadDeadline(time.Now().Add(partWithin))
	for e := range s.events { // ends when read posts gone
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

// isGone reports whether the client has closed its end or its process has ended.
func (s *session) isGone() bool { return s.peer.exited() || hasHungUp(s.conn) }
