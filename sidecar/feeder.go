package sidecar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"millrace"
	"millrace/constructors"
	"millrace/internal/activity"
	"millrace/internal/seal"
	"millrace/sidecar/ring"
)

// spare is the room of a frame beyond its largest tensors, in bytes. Lineage and state of ordinary size fit into it.
const spare = 64 << 10

const alignment = 64 // of lineage and state in a frame, in bytes

// feeder fills one rank's frames, step after step, as fast as the trainer releases frames.
type feeder struct {
	rank    millrace.Rank // of the world
	share   share
	begin   Begin
	steps   *steps
	memory  memory
	doing   *atomic.Pointer[activity.Cause] // the current wait, for STATUS
	meter   *activity.Source
	observe func(Event)
	out     func(event) // hands an event to the connection's loop
	giveUp  func(error) // called if this process gets no memory
	blob    []byte      // lineage of the current batch
}

// fillAll fills frames until the run ends (it posts noMore) or fails (it posts failed). If ctx or the steps end first,
// it posts nothing: the session sends the reason. If this process gets no memory, fillAll calls giveUp and posts
// nothing: the run has not failed, and another process replaces this one.
func (f *feeder) fillAll(ctx context.Context) {
	err := f.fillSteps(ctx)
	switch {
	case ctx.Err() != nil, f.steps.ctx.Err() != nil:
	case errors.Is(err, ring.ErrMemory):
		f.giveUp(err)
	case err != nil:
		f.out(failed{reason(err)})
	}
}

func (f *feeder) fillSteps(ctx context.Context) error {
	microbatch := f.begin.Microbatch
	for step := f.begin.Step; ; step++ {
		fetching := f.say(activity.Fetch, activity.Cause{}, "the plan and the samples of step %d", step)
		e, err := f.steps.take(ctx, f.rank, step)
		fetching.End(0)
		if errors.Is(err, io.EOF) {
			f.out(noMore{step})
			return nil
		}
		if err != nil {
			return err
		}
		last := e.plan.Last
		err = f.fillStep(ctx, e, microbatch)
		f.steps.give(e)
		if err != nil {
			return err
		}
		if last {
			f.out(noMore{step + 1})
			return nil
		}
		microbatch = 0
	}
}

func (f *feeder) fillStep(ctx context.Context, e *entry, from uint32) error {
	if from >= e.plan.Microbatches {
		return millrace.Errorf(millrace.ErrMismatch,
			"step %s has %d microbatches a rank, the trainer wants to continue at %d", e.step, e.plan.Microbatches,
			from)
	}
	for m := from; m < e.plan.Microbatches; m++ {
		batch, err := f.fill(ctx, e, m)
		if err != nil {
			return err
		}
		f.out(built{batch})
	}
	return nil
}

// fill builds one microbatch in a frame: tensors and lineage, and in the step's last microbatch the state.
func (f *feeder) fill(ctx context.Context, e *entry, m uint32) (filled, error) {
	plan := e.plan
	if err := seal.VerifyPart(plan.Plan, f.share.part, m); err != nil {
		return filled{}, err
	}
	in, err := e.content(f.share.part, m)
	if err != nil {
		return filled{}, err
	}
	collator := e.collator.For(f.share.slice)
	if f.share.bare {
		collator = collator.Bare()
	}
	tensors, size := collator.Layout(in.Part)
	most := f.steps.room
	if !f.share.whole {
		size, most = 0, 0
	}
	b := filled{
		slot: millrace.Slot{Attempt: plan.Attempt, Step: plan.Step, Rank: f.rank, Microbatch: m}, term: plan.Term,
		microbatches: plan.Microbatches, placement: plan.Placement, tensors: tensors, absent: !f.share.whole,
		stepLoss: e.loss,
	}
	b.loss = collator.LossTokens(in.Part, in.Tokens, in.Masked)
	if f.blob, err = appendLineage(f.blob[:0], in.Part, plan.Sources, in.Fields); err != nil {
		return filled{}, err
	}
	var state []byte
	if m == plan.Microbatches-1 {
		state, b.last = plan.State, plan.Last
	}
	b.lineage = span{align(size), int64(len(f.blob))}
	b.state = span{align(b.lineage.offset + b.lineage.bytes), int64(len(state))}
	b.bytes = b.state.offset + b.state.bytes
	waiting := f.say(activity.Frames, activity.Cause{Kind: activity.Frames, Role: "trainer"},
		"a free frame for step %d: the trainer holds all frames", plan.Step)
	at := ring.At{Step: uint64(plan.Step), Microbatch: m}
	var done func(error) error
	b.frame, done, err = f.memory.acquire(ctx, at, b.bytes, most+spare+2*(b.bytes-size))
	waiting.End(0)
	if err != nil || done == nil {
		return b, err
	}
	building := f.say(activity.Build, activity.Cause{Kind: activity.Build, Role: "sidecar", Pid: int64(os.Getpid())},
		"the sidecar to build a batch of step %d", plan.Step)
	defer building.End(0)
	f.observe(Event{Kind: Filling, Slot: b.slot, Generation: b.frame.Generation})
	err = f.build(in, b, collator, size, state)
	return b, errors.Join(err, done(err))
}

// build writes a microbatch into its frame. size is the size of its tensors in bytes.
func (f *feeder) build(
	in constructors.Content, b filled, collator *constructors.Collator, size int64, state []byte,
) error {
	dst := b.frame.Bytes
	if f.share.whole {
		if err := collator.Build(dst[:size], b.tensors, in.Part, in.Tokens, in.Masked); err != nil {
			return fmt.Errorf("build %s: %w", b.slot, err)
		}
	}
	copy(dst[b.lineage.offset:], f.blob)
	copy(dst[b.state.offset:], state)
	return nil
}

// memory has the frames of one connection: those of its group, and its own for batches that the group has passed and
// for ranks without a group.
type memory struct {
	own    *ring.Pool
	member *ring.Member // nil: no group
}

// acquire returns a frame for a batch. The caller builds the batch in it and then calls done. If done is nil, another
// rank of the group has built it.
func (m memory) acquire(ctx context.Context, at ring.At, need, room int64) (
	f ring.Frame, done func(error) error, err error,
) {
	if m.member != nil {
		f, mine, err := m.member.Take(ctx, at, need, room)
		switch {
		case err == nil && !mine:
			return f, nil, nil
		case err == nil:
			return f, func(built error) error { return m.member.Built(at, built) }, nil
		case !errors.Is(err, ring.ErrPassed):
			return f, nil, err
		}
	}
	f, err = m.own.Acquire(ctx, need, room)
	return f, func(error) error { return nil }, err
}

// release takes back a frame that the trainer has released.
func (m memory) release(r release) error {
	if m.member != nil && ring.IsShared(r.ring) {
		return m.member.Release(r.ring, r.frame, r.generation)
	}
	return m.own.Release(r.ring, r.frame, r.generation)
}

// say begins an activity of the feeder and makes it known. The caller ends it.
func (f *feeder) say(kind activity.Kind, cause activity.Cause, format string, step millrace.Step) *activity.Activity {
	cause.Text = fmt.Sprintf(format, uint64(step))
	f.doing.Store(&cause)
	return f.meter.Begin(kind, "")
}

func align(n int64) int64 { return (n + alignment - 1) / alignment * alignment }
