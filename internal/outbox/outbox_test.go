package outbox

import (
	"context"
	"errors"
	"slices"
	"testing"
)

// stuck is a stream that takes no message before it is freed, as one that waits for a connection.
type stuck struct {
	isOver  bool          // its reader is told that the stream has ended
	reached chan struct{} // closed when the first message has come
	free    chan error    // the result of the next message
	sent    []int
}

func (s *stuck) send(m int) error {
	if len(s.sent) == 0 {
		close(s.reached)
	}
	s.sent = append(s.sent, m)
	return <-s.free
}

// carried starts a queue with the message 0, and returns it when the stream is stuck with that. over is closed when
// nothing is carried any more.
func carried(ctx context.Context, merge func([]int) []int) (o *Outbox[int], s *stuck, over chan struct{}) {
	o, s, over = New[int](), &stuck{reached: make(chan struct{}), free: make(chan error)}, make(chan struct{})
	go func() { o.Send(ctx, func() { s.isOver = true }, s.send, merge); close(over) }()
	o.Push(0)
	<-s.reached
	return o, s, over
}

// TestNobodyWaitsForAStuckStream, and all messages are sent in their order when it goes on.
func TestNobodyWaitsForAStuckStream(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	o, s, over := carried(ctx, nil)
	if !o.IsIdle() {
		t.Error("the queue is not idle, though no message waits")
	}
	want := []int{0}
	for m := 1; m < 100; m++ {
		o.Push(m)
		want = append(want, m)
	}
	if o.IsIdle() {
		t.Error("the queue is idle while messages wait")
	}
	for range want {
		s.free <- nil
	}
	cancel()
	<-over
	if !slices.Equal(s.sent, want) {
		t.Errorf("sent %v", s.sent)
	}
	checkOver(t, o)
}

// TestABrokenStreamEndsTheQueue: no further message is sent, and none is held. The stream ends for its reader, too.
func TestABrokenStreamEndsTheQueue(t *testing.T) {
	o, s, over := carried(t.Context(), nil)
	o.Push(1)
	s.free <- errors.New("the stream is broken")
	<-over
	if !slices.Equal(s.sent, []int{0}) {
		t.Errorf("sent %v", s.sent)
	}
	if !s.isOver {
		t.Error("the stream has a reader and no sender")
	}
	checkOver(t, o)
}

// TestMessagesThatWaitTogetherAreMerged.
func TestMessagesThatWaitTogetherAreMerged(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	sum := func(all []int) (out []int) {
		out = []int{0}
		for _, m := range all {
			out[0] += m
		}
		return out
	}
	o, s, over := carried(ctx, sum)
	o.Push(3)
	o.Push(4)
	s.free <- nil
	s.free <- nil
	cancel()
	<-over
	if !slices.Equal(s.sent, []int{0, 7}) {
		t.Errorf("sent %v", s.sent)
	}
}

// checkOver checks that an ended queue takes no message.
func checkOver(t *testing.T, o *Outbox[int]) {
	t.Helper()
	o.Push(8)
	if o.IsIdle() || len(o.take()) > 0 {
		t.Error("a queue whose stream has ended holds messages")
	}
}
