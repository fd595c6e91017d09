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

// wait is the reason of one fetch. The lock of its waits guards it.
type wait struct {
	list  *waits
	step  millrace.Step
	since time.Time
	text  string
}

func (w *waits) newWait(step millrace.Step) *wait { return &wait{list: w, step: step} }

// because sets the reason. The wait begins with the first reason after clear.
func (x *wait) because(text string) {
	x.list.mu.Lock()
	defer x.list.mu.Unlock()
	if _, waits := x.list.fetches[x]; !waits {
		x.since = x.list.clock.Now()
		x.list.fetches[x] = struct{}{}
	}
	x.text = text
}

// clear ends the wait.
func (x *wait) clear() {
	x.list.mu.Lock()
	defer x.list.mu.Unlock()
	delete(x.list.fetches, x)
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
	defer w.mu.Unlock()
	var first *wait
	for x := range w.fetches {
		if first == nil || x.step < first.step || x.step == first.step && x.since.Before(first.since) {
			first = x
		}
	}
	var texts []string
	now := w.clock.Now()
	if first != nil {
		texts = append(texts,
			fmt.Sprintf("step %d waits for %s, since %.1f s", first.step, first.text, now.Sub(first.since).Seconds()))
	}
	if !w.mute.IsZero() {
		texts = append(texts,
			fmt.Sprintf("the orchestrator has not answered for %.1f s: is it stopped?", now.Sub(w.mute).Seconds()))
	}
	if w.orchestrator != "" {
		texts = append(texts, w.orchestrator)
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
