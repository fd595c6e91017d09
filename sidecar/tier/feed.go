package tier

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"millrace"
	"millrace/internal/wire"
	"millrace/proto"
	"millrace/sidecar"
)

// These bound the wait for a constructor.
const (
	silentAfter = 10 * beatEvery         // without any message
	leastLate   = 250 * time.Millisecond // from the request to the last row; see constructor.lateAfter
	mostLate    = 10 * time.Second       //
	unknownLate = 2 * time.Second        // before enoughTimes answers
	timesLate   = 4
	enoughTimes = 8
	mostTimes   = 32
	firstPause  = time.Second // after a failure; it doubles with each further one
	mostPause   = time.Minute
)

// constructor is another sidecar that fetches for this one. It is safe for concurrent use.
type constructor struct {
	name, address string

	mu     sync.Mutex
	took   []time.Duration // of its newest answers, a ring
	next   int
	pause  time.Duration // after the next failure; 0: firstPause
	resume time.Time     // until then it is not asked
}

// isAsked reports whether a request is worth a try.
func (c *constructor) isAsked(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !now.Before(c.resume)
}

// lateAfter returns the time after which an answer is late: a multiple of the second longest of its newest answers.
func (c *constructor) lateAfter() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.took) < enoughTimes {
		return unknownLate
	}
	sorted := slices.Sorted(slices.Values(c.took))
	return min(max(timesLate*sorted[len(sorted)-2], leastLate), mostLate)
}

// answered notes an answer.
func (c *constructor) answered(took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.took) < mostTimes {
		c.took = append(c.took, took)
	} else {
		c.took[c.next] = took
	}
	c.next = (c.next + 1) % mostTimes
	c.pause, c.resume = 0, time.Time{}
}

// failed notes a failure. It returns false if one was noted a moment before, by a request for another step.
func (c *constructor) failed(now time.Time) (pause time.Duration, isNew bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Before(c.resume) {
		return 0, false
	}
	pause = max(c.pause, firstPause)
	c.pause, c.resume = min(2*pause, mostPause), now.Add(pause)
	return pause, true
}

// source is one of two ways to the tokens.
type source struct {
	payload  sidecar.Payload
	err      error
	isDirect bool
}

// fed fetches the tokens of ranks from their constructor. If it does not have them in time, fed asks the loaders, and
// takes the first answer of the two.
func (t *Tier) fed(
	ctx context.Context, plan *millrace.Plan, from *constructor, ranks []millrace.Rank,
) (sidecar.Payload, error) {
	began := t.cfg.Clock.Now()
	if !from.isAsked(began) {
		return t.fromLoaders(ctx, plan, ranks)
	}
	ctx, cancel := context.WithCancel(ctx)
	answers, open := make(chan source, 2), 0
	start := func(isDirect bool, get func(context.Context) (sidecar.Payload, error)) {
		open++
		t.asked.Go(func() {
			p, err := get(ctx)
			answers <- source{p, err, isDirect}
		})
	}
	defer func() {
		cancel()
		if open > 0 { // the other way may have the tokens, too
			t.asked.Go(func() { drop(answers, open) })
		}
	}()
	isDirect := false
	direct := func() {
		if !isDirect {
			isDirect = true
			start(true, func(ctx context.Context) (sidecar.Payload, error) { return t.fromLoaders(ctx, plan, ranks) })
		}
	}
	start(false, func(ctx context.Context) (sidecar.Payload, error) { return t.ask(ctx, plan, from, ranks) })
	late := t.cfg.Clock.After(from.lateAfter())
	for {
		select {
		case <-late:
			direct()
		case a := <-answers:
			open--
			switch {
			case a.err == nil && !a.isDirect:
				from.answered(t.cfg.Clock.Now().Sub(began))
				return a.payload, nil
			case a.isDirect:
				if open > 0 && a.err == nil {
					t.give(from, plan, errLate)
				}
				return a.payload, a.err
			case ctx.Err() != nil:
				return nil, ctx.Err()
			}
			t.give(from, plan, a.err)
			direct()
		}
	}
}

var errLate = errors.New("it is slower than the loaders")

// give gives a constructor up for a while. A refusal concerns one step alone.
func (t *Tier) give(from *constructor, plan *millrace.Plan, err error) {
	if errors.Is(err, millrace.ErrFenced) {
		t.cfg.Log.Debug("a constructor refused a step", "constructor", from.name, "step", uint64(plan.Step),
			"reason", err)
		return
	}
	if pause, isNew := from.failed(t.cfg.Clock.Now()); isNew {
		t.cfg.Log.Warn("the loaders send what the constructor on another host did not", "constructor", from.name,
			"step", uint64(plan.Step), "for", pause, "reason", err)
	}
}

// drop releases the payloads of answers that come too late.
func drop(answers <-chan source, open int) {
	for range open {
		if a := <-answers; a.payload != nil {
			a.payload.Release()
		}
	}
}

// ask asks a constructor. A silence is an error.
func (t *Tier) ask(
	ctx context.Context, plan *millrace.Plan, from *constructor, ranks []millrace.Rank,
) (sidecar.Payload, error) {
	t.cfg.Fail.Hit("sidecar/feed/before")
	conn, err := t.cfg.Net.Dial(from.address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	req := &proto.GroupRequest{
		Fence: &proto.Fence{Stream: string(plan.Stream), Attempt: uint32(plan.Attempt)},
		Step:  uint64(plan.Step), Placement: plan.Placement[:],
	}
	for _, r := range ranks {
		req.Rank = append(req.Rank, uint32(r))
	}
	var heard atomic.Uint64 // messages
	t.asked.Go(func() { t.watch(ctx, cancel, &heard) })
	stream, err := proto.NewConstructorClient(conn).Fetch(ctx, req)
	if err != nil {
		return nil, explained(ctx, err)
	}
	p := newReceived(plan, ranks)
	for isLast := false; !isLast; {
		r, err := stream.Recv()
		if err != nil {
			return nil, explained(ctx, err)
		}
		heard.Add(1)
		if err := p.take(r); err != nil {
			return nil, fmt.Errorf("step %s from %s: %w", plan.Step, from.name, err)
		}
		isLast = r.Last
	}
	if _, err := stream.Recv(); err != io.EOF {
		return nil, explained(ctx, err)
	}
	if err := p.settle(t.cfg.IsMasked); err != nil {
		return nil, err
	}
	t.constructors.Add(bytesOf(plan, ranks, p))
	t.cfg.Fail.Hit("sidecar/feed/after")
	return p, nil
}

// watch ends a request whose constructor is silent.
func (t *Tier) watch(ctx context.Context, end context.CancelCauseFunc, heard *atomic.Uint64) {
	for before := uint64(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-t.cfg.Clock.After(silentAfter):
		}
		now := heard.Load()
		if now == before {
			end(fmt.Errorf("it has been silent for %v", silentAfter))
			return
		}
		before = now
	}
}

// explained returns the reason of a request's end.
func explained(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	if err == nil {
		return errors.New("it sent more than the last reply")
	}
	return wire.FromStatus(err)
}
