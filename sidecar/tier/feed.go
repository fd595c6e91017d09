package tier

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"millrace"
	"millrace/internal/wire"
	"millrace/proto"
	"millrace/sidecar"
)

// feed is the fetch of a step's tokens from their constructor, and from the loaders if it does not have them in time.
// Whichever answers first wins.
type feed struct {
	*Tier
	plan    *millrace.Plan
	from    *constructor
	ranks   []millrace.Rank
	answers chan answer
	open    int           // answers that have not come
	asks    bool          // the loaders are asked
	heard   atomic.Uint64 // messages of the constructor
	before  uint64        // of them, before the constructor was taken for silent
}

// answer is the answer of the constructor or of the loaders.
type answer struct {
	payload  sidecar.Payload
	err      error
	isDirect bool
}

var (
	errSilent = errors.New("it is silent")
	errSlow   = errors.New("it is slower than the loaders")
)

// fed fetches the tokens of ranks from their constructor.
func (t *Tier) fed(
	ctx context.Context, plan *millrace.Plan, from *constructor, ranks []millrace.Rank,
) (sidecar.Payload, error) {
	began := t.cfg.Clock.Now()
	if !from.isAsked(began) {
		return t.fromLoaders(ctx, plan, ranks)
	}
	f := &feed{Tier: t, plan: plan, from: from, ranks: ranks, answers: make(chan answer, 2)}
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		if f.open > 0 { // the other side may have the tokens, too
			t.asked.Go(func() { drop(f.answers, f.open) })
		}
	}()
	f.start(ctx, false, f.ask)
	silent := make(chan uint64, 1)
	t.asked.Go(func() { f.watch(ctx, silent) })
	late := t.cfg.Clock.After(from.lateAfter())
	for {
		select {
		case f.before = <-silent:
			silent = nil
			f.direct(ctx)
		case <-late:
			f.direct(ctx)
		case a := <-f.answers:
			f.open--
			switch {
			case a.err == nil && !a.isDirect:
				if silent == nil {
					from.spoke(t.cfg.Clock.Now())
				}
				from.answered(t.cfg.Clock.Now().Sub(began))
				return a.payload, nil
			case a.isDirect && a.err == nil && f.open > 0:
				f.lost(silent == nil)
				return a.payload, nil
			case a.isDirect:
				return a.payload, a.err
			case ctx.Err() != nil:
				return nil, ctx.Err()
			}
			f.giveUp(a.err)
			f.direct(ctx)
		}
	}
}

func (f *feed) start(ctx context.Context, isDirect bool, get func(context.Context) (sidecar.Payload, error)) {
	f.open++
	f.asked.Go(func() {
		p, err := get(ctx)
		f.answers <- answer{p, err, isDirect}
	})
}

// direct asks the loaders, once.
func (f *feed) direct(ctx context.Context) {
	if f.asks {
		return
	}
	f.asks = true
	f.start(ctx, true, func(ctx context.Context) (sidecar.Payload, error) {
		return f.fromLoaders(ctx, f.plan, f.ranks)
	})
}

// lost judges a constructor that the loaders have outrun.
func (f *feed) lost(wasSilent bool) {
	if wasSilent && f.heard.Load() == f.before {
		f.giveUp(errSilent)
		return
	}
	if wasSilent {
		f.from.spoke(f.cfg.Clock.Now())
	}
	if f.from.outrun() {
		f.giveUp(errSlow)
	}
}

// giveUp does without the constructor for a while. A refusal concerns one step alone.
func (f *feed) giveUp(err error) {
	if errors.Is(err, millrace.ErrFenced) {
		f.cfg.Log.Debug("a constructor refused a step", "constructor", f.from.name, "step", uint64(f.plan.Step),
			"reason", err)
		return
	}
	if pause, isNew := f.from.failed(f.cfg.Clock.Now()); isNew {
		f.cfg.Log.Warn("the loaders send what the constructor on another host did not", "constructor", f.from.name,
			"step", uint64(f.plan.Step), "for", pause, "reason", err)
	}
}

// drop releases the payloads of answers that come too late.
func drop(answers <-chan answer, open int) {
	for range open {
		if a := <-answers; a.payload != nil {
			a.payload.Release()
		}
	}
}

// ask asks the constructor.
func (f *feed) ask(ctx context.Context) (sidecar.Payload, error) {
	f.cfg.Fail.Hit("sidecar/feed/before")
	conn, err := f.cfg.Net.Dial(f.from.address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req := &proto.GroupRequest{
		Fence: &proto.Fence{Stream: string(f.plan.Stream), Attempt: uint32(f.plan.Attempt)},
		Step:  uint64(f.plan.Step), Placement: f.plan.Placement[:],
	}
	for _, r := range f.ranks {
		req.Rank = append(req.Rank, uint32(r))
	}
	stream, err := proto.NewConstructorClient(conn).Fetch(ctx, req)
	if err != nil {
		return nil, wire.FromStatus(err)
	}
	p := newReceived(f.plan, f.ranks)
	for isLast := false; !isLast; {
		r, err := stream.Recv()
		if err == io.EOF {
			err = errors.New("its answer has no end")
		}
		if err != nil {
			return nil, wire.FromStatus(err)
		}
		f.heard.Add(1)
		if err := p.take(r); err != nil {
			return nil, fmt.Errorf("step %s from %s: %w", f.plan.Step, f.from.name, err)
		}
		isLast = r.Last
	}
	if err := p.settle(f.cfg.IsMasked); err != nil {
		return nil, err
	}
	f.constructors.Add(bytesOf(f.plan, f.ranks, p))
	f.cfg.Fail.Hit("sidecar/feed/after")
	return p, nil
}

// watch posts the number of messages so far if nothing comes from the constructor for too long. Time in which this
// process had no processor does not count.
func (f *feed) watch(ctx context.Context, silent chan<- uint64) {
	limit := f.from.silentAfter(f.cfg.Clock.Now())
	quiet := time.Duration(0)
	for before := uint64(0); ; {
		began := f.cfg.Clock.Now()
		select {
		case <-ctx.Done():
			return
		case <-f.cfg.Clock.After(beatEvery):
		}
		now := f.heard.Load()
		switch {
		case now != before:
			quiet = 0
		case f.cfg.Clock.Now().Sub(began) < 2*beatEvery:
			quiet += beatEvery
		}
		if before = now; quiet >= limit {
			silent <- now
			return
		}
	}
}
