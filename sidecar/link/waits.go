package link

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"millrace"
	"millrace/internal/seam"
	"millrace/proto"
)

// answerWithin limits the time in which the orchestrator answers. After it, summary names the orchestrator's silence.
const answerWithin = 2 * time.Second

// waits holds the reasons of late batches: the loader that each fetch waits for, and the state of the orchestrator.
type waits struct {
	clock seam.Clock
	doubt chan struct{} // signals each call of summary to probe

	mu           sync.Mutex
	fetches      map[*wait]struct{}
	orchestrator string    // the reason that the orchestrator sent
	mute         time.Time // the time of the first status call without answer; zero: the orchestrator answers
}

// wait is one fetch.
type wait struct {
	step    millrace.Step
	since   time.Time
	explain func() string // returns the reason; safe for concurrent use
}

// begin notes that a fetch waits. The caller ends the wait with end.
func (w *waits) begin(step millrace.Step, explain func() string) *wait {
	x := &wait{step, w.clock.Now(), explain}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fetches[x] = struct{}{}
	return x
}

// end ends the wait of a fetch.
func (w *waits) end(x *wait) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.fetches, x)
}

// orchestratorSays sets the orchestrator's reason. "": the orchestrator waits for nothing.
func (w *waits) orchestratorSays(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.orchestrator = text
}

// summary returns the reason of the earliest waiting step and the orchestrator's reason, or "" if there is none.
func (w *waits) summary() string {
	select {
	case w.doubt <- struct{}{}:
	default: // probe is asking already
	}
	w.mu.Lock()
	var first *wait
	for x := range w.fetches {
		if first == nil || x.step < first.step || x.step == first.step && x.since.Before(first.since) {
			first = x
		}
	}
	mute, orchestrator, now := w.mute, w.orchestrator, w.clock.Now()
	w.mu.Unlock()
	var texts []string
	if first != nil {
		text, since := first.explain(), now.Sub(first.since)
		texts = append(texts, fmt.Sprintf("step %d waits for %s, since %.1f s", first.step, text, since.Seconds()))
	}
	if !mute.IsZero() {
		texts = append(texts,
			fmt.Sprintf("the orchestrator has not answered for %.1f s: is it stopped?", now.Sub(mute).Seconds()))
	}
	if orchestrator != "" {
		texts = append(texts, orchestrator)
	}
	return strings.Join(texts, "; ")
}

// probe asks the orchestrator for its status after each call of summary, until ctx ends. If the orchestrator is stopped
// or hangs, its stream stays open: only the missing answer shows it.
func (w *waits) probe(ctx context.Context, client proto.OrchestratorClient) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.doubt:
		}
		asked := w.clock.Now()
		call, cancel := context.WithTimeout(ctx, answerWithin)
		_, err := client.Status(call, &proto.StatusRequest{})
		cancel()
		w.mu.Lock()
		switch {
		case status.Code(err) != codes.DeadlineExceeded || ctx.Err() != nil:
			w.mute = time.Time{} // it has answered, or it is gone and its stream ends
		case w.mute.IsZero():
			w.mute = asked
		}
		w.mu.Unlock()
	}
}
