package loader

import (
	"context"
	"testing"

	"millrace/proto"
)

// TestEventsAreSentInOrder: a loader that reads, fails or is asked to leave queues its events. Each has a fence, and
// offers that follow each other share a message.
func TestEventsAreSentInOrder(t *testing.T) {
	r := newReporter()
	r.send(7, &proto.LoaderEvent{Event: &proto.LoaderEvent_Hello{Hello: &proto.LoaderHello{}}})
	r.offer(&proto.Offers{Source: "web"})
	r.trouble("web", "its disk is away")
	r.offer(&proto.Offers{Source: "web", Ordinal: make([]uint64, maxOffered-1)})
	r.offer(&proto.Offers{Source: "code", Ordinal: make([]uint64, 1)})
	r.offer(&proto.Offers{Source: "books", Ordinal: make([]uint64, 1)})
	r.tellLeaving("asked to leave", false)
	ctx, cancel := context.WithCancel(t.Context())
	var sent []*proto.LoaderEvent
	r.queue.Send(ctx, cancel, func(e *proto.LoaderEvent) error {
		if sent = append(sent, e); e.GetLeaving() != nil {
			cancel()
		}
		return nil
	}, merged)
	if len(sent) != 6 {
		t.Fatalf("sent %v", sent)
	}
	if sent[0].GetHello() == nil || sent[0].Fence.Term != 7 || sent[2].GetTrouble() == nil {
		t.Errorf("sent %v", sent)
	}
	for i, want := range map[int]int{1: 1, 3: 2, 4: 1} {
		if got := len(sent[i].GetOffered().GetStripes()); got != want || sent[i].Fence == nil {
			t.Errorf("message %d has offers of %d stripes, want %d", i, got, want)
		}
	}
}
