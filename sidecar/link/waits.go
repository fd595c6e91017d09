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

// answerWithin is how long the orchestrator may take to answer before waiting trainers are told.
const answerWithin = 2 * time.Second

// waits knows why batches are late: for which loader a fetch waits, and how the orchestrator does.
type waits struct {
	clock seam.Clock
	doubt chan struct{} // somebody asked for the reason

	mu           sync.Mutex
	fetches      map[*wait]struct{}
	orchestrator string    // its own reason
	mute         time.Time // since when the orchestrator does not answer; zero: it answers
}

// wait is the reason of one fetch. The lock of its waits guards it.
type wait struct {
	list  *waits
	step  millrace.Step
	since time.Time
	text  string
}

func (w *waits) newWait(step millrace.Step) *wait { return &wait{list: w, step: step} }

// because states the reason. The wait began with the first reason since clear.
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

// orchestratorSays replaces the orchestrator's own reason; "": it waits for nothing.
func (w *waits) orchestratorSays(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.orchestrator = text
}

// summary returns the reason of the earliest waiting step and the orchestrator's, "" if there is none.
func (w *waits) summary() string {
	select {
	case w.doubt <- struct{}{}:
	default: // the orchestrator is being asked
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
			fmt.Sprintf("the orchestrator answers nothing, since %.1f s: is it stopped?", now.Sub(w.mute).Seconds()))
	}
	if w.orchestrator != "" {
		texts = append(texts, w.orchestrator)
	}
	return strings.Join(texts, "; ")
}

// probe asks the orchestrator for its status after each call of summary, until ctx ends. A stopped or hanging
// orchestrator ends no stream, so only a missing answer shows it.
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
			w.mute = time.Time{} // the end of the stream tells that it is gone
		case w.mute.IsZero():
			w.mute = asked
		}
		w.mu.Unlock()
	}
}
