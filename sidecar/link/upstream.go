package link

import (
	"context"
	"fmt"
	"io"

	"millrace"
	"millrace/proto"
	"millrace/sidecar"
)

// Join implements sidecar.Upstream.
func (l *Link) Join(ctx context.Context, rank millrace.Rank, start sidecar.Start) (sidecar.Begin, error) {
	c := &call{answer: make(chan any, 1)}
	l.set(func() {
		l.lastCall++
		c.msg = &proto.Join{Rank: uint32(rank), Start: string(start.Kind), State: start.State, Override: start.Override,
			Attempt: uint32(start.Attempt), Step: uint64(start.Step), Microbatch: start.Microbatch, Call: l.lastCall}
		l.calls[l.lastCall] = c
		l.send(&proto.SidecarEvent{Event: &proto.SidecarEvent_Join{Join: c.msg}})
	})
	if err := l.await(ctx, func() bool { return l.failed != nil || len(c.answer) > 0 }); err != nil {
		l.set(func() { delete(l.calls, c.msg.Call) })
		return sidecar.Begin{}, err
	}
	select {
	case msg := <-c.answer:
		switch m := msg.(type) {
		case *proto.Begin:
			return l.begun(m), nil
		case *proto.Refusal:
			return sidecar.Begin{}, &sidecar.StartError{Reason: m.Reason}
		}
	default:
	}
	l.set(func() { delete(l.calls, c.msg.Call) })
	return sidecar.Begin{}, l.failure()
}

func (l *Link) begun(b *proto.Begin) sidecar.Begin {
	l.mu.Lock()
	defer l.mu.Unlock()
	return sidecar.Begin{Attempt: millrace.Attempt(b.Attempt), Term: millrace.Term(l.term), Step: millrace.Step(b.Step), Microbatch: b.Microbatch,
		State: b.State, Topology: l.cfg.Topology, Broadcast: l.cfg.Broadcast, Shapes: l.cfg.Shapes, PadMultiple: l.cfg.PadMultiple}
}

func (l *Link) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil {
		return l.failed
	}
	return nil
}

// Plan implements sidecar.Upstream.
func (l *Link) Plan(ctx context.Context, attempt millrace.Attempt, step millrace.Step) (*sidecar.StepPlan, error) {
	var p *sidecar.StepPlan
	var over error
	err := l.await(ctx, func() bool {
		switch {
		case l.failed != nil:
			over = l.failed
		case attempt < l.attempt:
			over = &sidecar.RunError{Reason: fmt.Sprintf("attempt %d was replaced by attempt %d: the other ranks started again; start this rank again too", attempt, l.attempt)}
		case attempt == l.attempt && l.plans[step] != nil:
			p = l.plans[step]
		case attempt == l.attempt && l.end != nil && uint64(step) >= l.end.Steps:
			over = io.EOF
		default:
			return false
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	return p, over
}

// Commit implements sidecar.Upstream: it returns when the orchestrator has answered.
func (l *Link) Commit(ctx context.Context, rank millrace.Rank, attempt millrace.Attempt, step millrace.Step) error {
	l.cfg.Fail.Hit("sidecar/commit/before")
	below := uint64(step) + 1
	l.set(func() {
		if p := l.ranks[rank]; p != nil && p.attempt == attempt && p.committed < below {
			p.committed = below
			l.sendCommit(rank, p)
		}
	})
	defer l.cfg.Fail.Hit("sidecar/commit/after")
	return l.await(ctx, func() bool {
		p := l.ranks[rank]
		return l.failed != nil || p == nil || p.attempt != attempt || p.known >= below
	})
}

// CheckpointSaved implements sidecar.Upstream. It is advice about retention: where it is lost, more is kept.
func (l *Link) CheckpointSaved(_ context.Context, _ millrace.Rank, _ millrace.Attempt, step millrace.Step) error {
	l.set(func() {
		l.send(&proto.SidecarEvent{Event: &proto.SidecarEvent_Saved{Saved: &proto.Saved{Step: uint64(step)}}})
	})
	return nil
}

// Reported implements sidecar.Upstream.
func (l *Link) Reported(rank millrace.Rank, r sidecar.Report) {
	out := &proto.Reported{Rank: uint32(rank), Attempt: uint32(r.Attempt), Step: uint64(r.Step), Microbatch: r.Microbatches, Seconds: r.Seconds}
	for _, x := range r.Losses {
		out.Losses = append(out.Losses, &proto.SourceLoss{Source: x.Source, LossSum: x.Sum, Tokens: x.Tokens})
	}
	l.set(func() { l.send(&proto.SidecarEvent{Event: &proto.SidecarEvent_Reported{Reported: out}}) })
}

// Left implements sidecar.Upstream.
func (l *Link) Left(rank millrace.Rank) {
	l.set(func() {
		if p := l.ranks[rank]; p != nil {
			p.left = true
		}
		l.sendLeft(rank)
	})
}

var _ sidecar.Upstream = (*Link)(nil)
