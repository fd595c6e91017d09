package loader

import (
	"context"
	"testing"

	"millrace/proto"
)

// stuck is a stream that takes no event before it is let go, as one that waits for a connection.
type stuck struct {
	proto.Orchestrator_LoadClient
	reached chan struct{}
	free    chan struct{}
	sent    chan *proto.LoaderEvent
}

func (s *stuck) Send(e *proto.LoaderEvent) error {
	select {
	case s.reached <- struct{}{}:
	default:
	}
	<-s.free
	s.sent <- e
	return nil
}

// TestNobodyWaitsForAStuckStream: a loader that reads, fails or is asked to leave goes on. Events are queued in order.
// After the stream has ended, nothing is held.
func TestNobodyWaitsForAStuckStream(t *testing.T) {
	r, s := newReporter(), &stuck{reached: make(chan struct{}, 1), free: make(chan struct{}),
		sent: make(chan *proto.LoaderEvent, 9)}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() { r.carry(ctx, s); close(over) }()
	r.send(0, &proto.LoaderEvent{Event: &proto.LoaderEvent_Hello{Hello: &proto.LoaderHello{}}})
	<-s.reached
	if !r.isIdle() {
		t.Error("figures are not queued, though no event waits")
	}
	r.trouble("web", "its disk is away")
	r.tellLeaving("asked to leave", false)
	r.offer(&proto.Offers{Source: "web"})
	r.offer(&proto.Offers{Source: "code"})
	if r.isIdle() {
		t.Error("figures are queued behind other events")
	}
	close(s.free)
	if e := <-s.sent; e.GetHello() == nil || e.Fence == nil {
		t.Errorf("the first event is %v", e)
	}
	if e := <-s.sent; e.GetTrouble() == nil {
		t.Errorf("the second event is %v", e)
	}
	if e := <-s.sent; e.GetLeaving() == nil {
		t.Errorf("the third event is %v", e)
	}
	if e := <-s.sent; len(e.GetOffered().GetStripes()) != 2 || e.Fence == nil {
		t.Errorf("the offers are %v", e)
	}
	cancel()
	<-over
	r.trouble("web", "")
	r.offer(&proto.Offers{Source: "web"})
	if events, offers := r.take(); len(events)+len(offers) > 0 || r.isIdle() {
		t.Errorf("after the end, %d events and %d offers are held", len(events), len(offers))
	}
}
