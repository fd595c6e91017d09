package link

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"time"

	"millrace"
	"millrace/internal/activity"
	"millrace/internal/event"
	"millrace/internal/outbox"
	"millrace/internal/wire"
	"millrace/proto"
	"millrace/sidecar"
)

// uplink queues events for the orchestrator, and stamps each with the run's fence. Queueing an event never waits for
// the stream: ranks continue with the plans that they have. Without a stream, events are dropped. Each concern
// therefore repeats its unanswered events to the next orchestrator.
type uplink struct {
	events *event.Log

	mu      sync.Mutex
	queue   *outbox.Outbox[*proto.SidecarEvent] // of the newest stream
	attempt millrace.Attempt
	term    uint64 // highest term of an orchestrator
}

func newUplink(events *event.Log) *uplink {
	u := &uplink{events: events, queue: outbox.New[*proto.SidecarEvent]()}
	u.queue.End() // there is no stream yet
	return u
}

// open begins the queue of a new stream with hello.
func (u *uplink) open(hello *proto.SidecarHello) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.queue = outbox.New[*proto.SidecarEvent]()
	u.push(&proto.SidecarEvent{Event: &proto.SidecarEvent_Hello{Hello: hello}})
}

// send queues an event if there is a stream. The caller does not change it any more.
func (u *uplink) send(e *proto.SidecarEvent) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.push(e)
}

// offer queues an event that a later one replaces, unless others wait.
func (u *uplink) offer(e *proto.SidecarEvent) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.queue.IsIdle() {
		u.push(e)
	}
}

// push queues an event. The caller holds the lock.
func (u *uplink) push(e *proto.SidecarEvent) {
	e.Fence = u.fence()
	u.queue.Push(e)
}

// drain sends the events of the newest stream until it or ctx ends. Then it calls end, which ends the stream.
func (u *uplink) drain(ctx context.Context, end func(), stream proto.Orchestrator_ServeClient) {
	u.mu.Lock()
	queue := u.queue
	u.mu.Unlock()
	queue.Send(ctx, end, stream.Send, nil)
}

func (u *uplink) fence() *proto.Fence {
	return &proto.Fence{Stream: string(millrace.Train), Attempt: uint32(u.attempt), Term: u.term}
}

// admit checks the term of an order. It refuses a term below the highest seen, because the sender is fenced. It reports
// whether the term is higher than all before.
func (u *uplink) admit(term uint64) (isNew bool, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if term < u.term {
		return false, millrace.Errorf(millrace.ErrFenced, "order of term %d after term %d", term, u.term)
	}
	isNew, u.term = term > u.term, term
	return isNew, nil
}

// highestTerm returns the highest term of an orchestrator so far.
func (u *uplink) highestTerm() uint64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.term
}

// enter sets the attempt of the fence of later events.
func (u *uplink) enter(a millrace.Attempt) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.attempt = a
}

// record adds stream and attempt to an entry, and writes it to the event log of this process.
func (u *uplink) record(r event.Record) {
	u.mu.Lock()
	defer u.mu.Unlock()
	r.Stream, r.Attempt, r.Rank, r.Micro = string(millrace.Train), uint32(u.attempt), -1, -1
	u.events.Write(r)
}

// replaced is the error if another process serves these ranks now.
type replaced struct{ reason string }

func (e *replaced) Error() string { return "told to leave: " + e.reason }

// refused is the error if the orchestrator refuses this program. It would refuse another try too.
type refused struct{ reason string }

func (e *refused) Error() string { return "refused by the orchestrator: " + e.reason }

// alerts holds the run's open alerts as the orchestrator last listed them.
type alerts struct {
	log *slog.Logger

	condition
	open    []sidecar.Alert
	version uint64 // counts the lists
}

// replace stores a new list and logs each alert that begins or ends.
func (a *alerts) replace(list []*proto.Alert) {
	now := make([]sidecar.Alert, 0, len(list))
	for _, x := range list {
		now = append(now, sidecar.Alert{Kind: x.Kind, Text: x.Text, Since: x.Since})
	}
	a.update(func() {
		for _, x := range now {
			if !sidecar.Holds(a.open, x) {
				a.log.Warn("alert", "kind", x.Kind, "text", x.Text)
			}
		}
		for _, x := range a.open {
			if !sidecar.Holds(now, x) {
				a.log.Warn("alert is over", "kind", x.Kind, "text", x.Text)
			}
		}
		a.open = now
		a.version++
	})
}

// newerThan blocks until the version of the list is above after, and returns the list and its version.
func (a *alerts) newerThan(ctx context.Context, after uint64) (open []sidecar.Alert, version uint64, err error) {
	err = a.until(ctx, func() bool {
		open, version = a.open, a.version
		return version > after
	})
	return open, version, err
}

// figuresEvery is the time between two reports of the sidecar's activities and of its trainers' waits.
const figuresEvery = 500 * time.Millisecond

// reportFigures reports until ctx ends. Without a stream to the orchestrator a report is lost: the counters only grow,
// so that the next one has everything.
func (l *Link) reportFigures(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.cfg.Clock.After(figuresEvery):
		}
		all := map[string]activity.Total{}
		figures := wire.FiguresToProto(l.cfg.Meter, l.cfg.Name, int64(os.Getpid()), all)
		figures.Ranks, figures.Supply = l.cfg.Gauge.Figures(), l.Supply()
		l.up.offer(&proto.SidecarEvent{Event: &proto.SidecarEvent_Figures{Figures: figures}})
	}
}

// Delivery implements sidecar.Upstream.
func (l *Link) Delivery() *proto.Delivery { return l.waits.newest().GetDelivery() }
