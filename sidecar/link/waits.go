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
	"millrace/internal/activity"
	"millrace/internal/seam"
	"millrace/internal/wire"
	"millrace/proto"
)

// answerWithin limits the time in which the orchestrator answers. After it, summary names the orchestrator's silence.
const answerWithin = 2 * time.Second

// tellWithin limits the time in which a loader names its activity.
const tellWithin = 500 * time.Millisecond

// waits holds the reasons of late batches: the loader that each fetch waits for, and the state of the orchestrator.
type waits struct {
	clock seam.Clock
	doubt chan struct{} // signals each call of summary to probe
	ask   chan awaited  // the loader of the newest summary, for askLoaders

	mu           sync.Mutex
	fetches      map[*wait]struct{}
	orchestrator activity.Cause // that the orchestrator sent
	// mute is the time of the first status call without answer; zero: the orchestrator answers
	mute          time.Time
	answer        *proto.StatusReply      // newest; nil: none
	loaderAnswers map[string]loaderAnswer // by the address of a loader
}

// loaderAnswer is the answer of a loader about a source.
type loaderAnswer struct {
	at     time.Time
	source string
	now    *proto.Activity
}

// stale is the age from which on the answer of a loader is not repeated.
const stale = 2 * time.Second

// wait is one fetch.
type wait struct {
	step    millrace.Step
	since   time.Time
	explain func() awaited // returns the reason; safe for concurrent use
}

// awaited is the reason of a wait for a fetch.
type awaited struct {
	text          string
	source, shard string
	loader        string // name; empty: none was asked
	address       string
}

// begin notes that a fetch waits. The caller ends the wait with end.
func (w *waits) begin(step millrace.Step, explain func() awaited) *wait {
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

// orchestratorSays sets the orchestrator's reason. The zero value: the orchestrator waits for nothing.
func (w *waits) orchestratorSays(cause activity.Cause) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.orchestrator = cause
}

// summary returns the reason of the earliest waiting step and the orchestrator's reason. The text is empty if there is
// none. The cause is that of the earliest step, or of its plan.
func (w *waits) summary() activity.Cause {
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
	cause := w.planned(now)
	w.mu.Unlock()
	var texts []string
	if first != nil {
		of, since := first.explain(), now.Sub(first.since)
		var says string
		cause, says = w.fetched(of, now)
		texts = append(texts, fmt.Sprintf("step %d waits for %s%s, since %.1f s", first.step, of.text, says,
			since.Seconds()))
	}
	if !mute.IsZero() {
		texts = append(texts,
			fmt.Sprintf("the orchestrator has not answered for %.1f s: is it stopped?", now.Sub(mute).Seconds()))
	}
	if orchestrator.Text != "" {
		texts = append(texts, orchestrator.Text)
	}
	cause.Text = strings.Join(texts, "; ")
	return cause
}

// planned returns the cause of a missing plan; mu is held.
func (w *waits) planned(now time.Time) activity.Cause {
	by := activity.Cause{Kind: activity.Plan, Role: "orchestrator", Pid: w.answer.GetPid()}
	switch {
	case !w.mute.IsZero():
	case w.orchestrator.Kind != "":
		return w.orchestrator
	case w.answer.GetIsFull() && len(w.answer.GetSlowestRanks()) > 0:
		return activity.Cause{Kind: activity.Ranks, Role: fmt.Sprint("rank ", w.answer.SlowestRanks[0])}
	}
	return by
}

// fetched returns the cause of a fetch, and the words of its loader about it. It lets askLoaders ask again.
func (w *waits) fetched(of awaited, now time.Time) (cause activity.Cause, says string) {
	cause = activity.Cause{Kind: activity.Fetch, Source: of.source, Shard: of.shard, Role: of.loader}
	if of.address == "" {
		return cause, ""
	}
	select {
	case w.ask <- of:
	default: // askLoaders is asking already
	}
	w.mu.Lock()
	t, ok := w.loaderAnswers[of.address]
	w.mu.Unlock()
	if !ok || t.source != of.source || now.Sub(t.at) > stale {
		return cause, ""
	}
	if cause.Pid = t.now.Pid; t.now.Kind == "" {
		return cause, ""
	}
	cause = wire.CauseFromProto(t.now)
	return cause, ": " + cause.Describe()
}

// askLoaders asks the loaders of summaries for their current activities, until ctx ends.
func (w *waits) askLoaders(ctx context.Context, conns *connections) {
	for {
		var of awaited
		select {
		case <-ctx.Done():
			return
		case of = <-w.ask:
		}
		conn, err := conns.dial(of.address)
		if err != nil {
			continue
		}
		call, cancel := context.WithTimeout(ctx, tellWithin)
		now, err := proto.NewLoaderClient(conn).Current(call, &proto.CurrentRequest{Source: of.source})
		cancel()
		w.mu.Lock()
		if w.loaderAnswers == nil || len(w.loaderAnswers) > 1000 {
			w.loaderAnswers = map[string]loaderAnswer{}
		}
		if err == nil {
			w.loaderAnswers[of.address] = loaderAnswer{w.clock.Now(), of.source, now}
		} else {
			delete(w.loaderAnswers, of.address)
		}
		w.mu.Unlock()
	}
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
		reply, err := client.Status(call, &proto.StatusRequest{})
		cancel()
		w.mu.Lock()
		switch {
		case status.Code(err) != codes.DeadlineExceeded || ctx.Err() != nil:
			w.mute = time.Time{} // it has answered, or it is gone and its stream ends
		case w.mute.IsZero():
			w.mute = asked
		}
		if err == nil {
			w.answer = reply
		}
		w.mu.Unlock()
	}
}

// newest returns the orchestrator's newest answer, nil if there is none, and asks for the next.
func (w *waits) newest() *proto.StatusReply {
	select {
	case w.doubt <- struct{}{}:
	default:
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.answer
}
