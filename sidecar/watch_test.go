package sidecar_test

import (
	"fmt"
	"testing"
	"time"

	"millrace"
	"millrace/sidecar"
)

// seen is a sidecar.Watcher that passes its calls on.
type seen struct{ lines chan string }

func (s seen) Arrived(rank millrace.Rank, number int, at sidecar.Seat) {
	visible, local := "-", -1
	if at.Visible != nil {
		visible = *at.Visible
	}
	if at.LocalRank != nil {
		local = *at.LocalRank
	}
	s.lines <- fmt.Sprintf("rank %d socket %d visible %s local rank %d device %v", rank, number, visible, local,
		at.Device)
}

func (s seen) Waited(rank millrace.Rank, total time.Duration) {
	s.lines <- fmt.Sprintf("rank %d waited %v", rank, total)
}

func (s seen) Left(rank millrace.Rank) { s.lines <- fmt.Sprintf("rank %d left", rank) }

// TestAWatcherLearnsSeatAndWaits: HELLO has the trainer's GPU; COMMIT and WAIT have its waits.
func TestAWatcherLearnsSeatAndWaits(t *testing.T) {
	watch := seen{make(chan string, 16)}
	c := small
	c.World = 1
	h := open(t, c, func(c *sidecar.Config) { c.Watch = watch })
	tr := dial(t, h.path(0))
	tr.hello("fresh", map[string]any{"gpu": map[string]any{"visible": "3,1", "local_rank": 1, "device": nil}})
	tr.want(begin)
	tr.want(batchMsg)
	tr.release(tr.want(batchMsg))
	tr.send(msg{kind: commit, attempt: 1, step: 0, generation: 1_500_000})
	tr.send(msg{kind: commit, attempt: 1, step: 0}) // of an older client
	tr.send(msg{kind: wait, generation: 2_000_000})
	tr.close()
	for _, want := range []string{"rank 0 socket 0 visible 3,1 local rank 1 device <nil>", "rank 0 waited 1.5s",
		"rank 0 waited 2s", "rank 0 left"} {
		select {
		case got := <-watch.lines:
			if got != want {
				t.Errorf("%q, want %q", got, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("no %q", want)
		}
	}
}
