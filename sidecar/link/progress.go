package link

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	pbuf "google.golang.org/protobuf/proto"

	"millrace"
	"millrace/constructors"
	"millrace/internal/event"
	"millrace/internal/failpoint"
	"millrace/internal/seal"
	"millrace/internal/wire"
	"millrace/proto"
	"millrace/sidecar"
)

// progress holds the attempt and its plans, and the joins and positions of this host's ranks.
type progress struct {
	hosted   int // ranks of this host
	topology millrace.Topology
	shapes   *constructors.Set
	fail     *failpoint.Set
	events   *event.Log
	up       *uplink

	condition
	attempt  millrace.Attempt
	plans    map[millrace.Step]*sidecar.StepPlan // of attempt
	end      *proto.Ended                        // of attempt
	failed   *sidecar.RunError                   // the run has failed
	fatal    *proto.Fatal                        // this host cannot continue: reported to every orchestrator
	calls    map[uint64]*pendingJoin
	lastCall uint64
	ranks    map[millrace.Rank]*position
}

// pendingJoin is a Join that waits for its answer.
type pendingJoin struct {
	msg    *proto.Join
	answer chan any // *proto.Begin or *proto.Refusal
}

// position is the position of a rank. A new orchestrator receives it in the hello.
type position struct {
	attempt   millrace.Attempt
	committed uint64 // the trainer has committed the steps below
	known     uint64 // the orchestrator has confirmed the commits of the steps below
	begun     bool
	left      bool // its trainer is gone
}

// greet begins the events to a new orchestrator with the positions of the ranks. It repeats all events that no
// orchestrator has answered.
func (p *progress) greet(hello *proto.SidecarHello) {
	p.Lock()
	defer p.Unlock()
	hello.Pid = int64(os.Getpid())
	for r, at := range p.ranks {
		hello.Ranks = append(hello.Ranks,
			&proto.RankPosition{Rank: uint32(r), Attempt: uint32(at.attempt), Below: at.committed, Serving: at.begun})
	}
	p.up.open(hello)
	for r, at := range p.ranks {
		if at.left {
			p.sendLeft(r)
		}
	}
	for _, c := range p.calls {
		p.up.send(&proto.SidecarEvent{Event: &proto.SidecarEvent_Join{Join: c.msg}})
	}
	for r, at := range p.ranks {
		if at.known < at.committed {
			p.sendCommit(r, at)
		}
	}
}

func (p *progress) sendLeft(r millrace.Rank) {
	p.up.send(&proto.SidecarEvent{Event: &proto.SidecarEvent_Left{Left: &proto.Left{Rank: uint32(r)}}})
}

func (p *progress) sendCommit(r millrace.Rank, at *position) {
	p.up.send(&proto.SidecarEvent{Event: &proto.SidecarEvent_Commit{
		Commit: &proto.Commit{Rank: uint32(r), Attempt: uint32(at.attempt), Step: at.committed - 1},
	}})
}

// repeatComplaint repeats the reason given to complain, if there is one.
func (p *progress) repeatComplaint() {
	p.Lock()
	defer p.Unlock()
	if p.fatal != nil {
		p.up.send(&proto.SidecarEvent{Event: &proto.SidecarEvent_Fatal{Fatal: p.fatal}})
	}
}

// complain reports to this orchestrator, and to each later one, that the run cannot continue. The first reason counts.
func (p *progress) complain(reason string) { p.update(func() { p.complainOnce(reason) }) }

func (p *progress) complainOnce(reason string) {
	if p.fatal == nil {
		p.fatal = &proto.Fatal{Reason: reason}
		p.up.send(&proto.SidecarEvent{Event: &proto.SidecarEvent_Fatal{Fatal: p.fatal}})
	}
}

// join sends a rank's start and blocks until the orchestrator answers. Its error is a *sidecar.StartError, a
// *sidecar.RunError or the context's.
func (p *progress) join(ctx context.Context, rank millrace.Rank, start sidecar.Start) (*proto.Begin, error) {
	c := &pendingJoin{answer: make(chan any, 1)}
	p.update(func() {
		p.lastCall++
		c.msg = &proto.Join{
			Rank: uint32(rank), Start: string(start.Kind), State: start.State, Override: start.Override,
			Attempt: uint32(start.Attempt), Step: uint64(start.Step), Microbatch: start.Microbatch, Call: p.lastCall,
			World: uint32(p.topology.Ranks), Tp: uint32(p.topology.TP), Cp: uint32(p.topology.CP),
			Pp: uint32(p.topology.PP),
		}
		p.calls[p.lastCall] = c
		p.up.send(&proto.SidecarEvent{Event: &proto.SidecarEvent_Join{Join: c.msg}})
	})
	var failed *sidecar.RunError
	err := p.until(ctx, func() bool { failed = p.failed; return failed != nil || len(c.answer) > 0 })
	if err != nil {
		p.update(func() { delete(p.calls, c.msg.Call) })
		return nil, err
	}
	select {
	case msg := <-c.answer:
		switch m := msg.(type) {
		case *proto.Begin:
			return m, nil
		case *proto.Refusal:
			return nil, &sidecar.StartError{Reason: m.Reason}
		}
	default:
	}
	p.update(func() { delete(p.calls, c.msg.Call) })
	return nil, failed
}

// planned implements Link.Plan.
func (p *progress) planned(
	ctx context.Context,
	attempt millrace.Attempt,
	step millrace.Step,
) (plan *sidecar.StepPlan, err error) {
	var over error
	err = p.until(ctx, func() bool {
		switch {
		case p.failed != nil:
			over = p.failed
		case attempt < p.attempt:
			over = &sidecar.RunError{
				Reason: fmt.Sprintf(
					"attempt %d was replaced by attempt %d: the other ranks started again; start this rank again too",
					attempt,
					p.attempt,
				),
			}
		case attempt == p.attempt && p.plans[step] != nil:
			plan = p.plans[step]
		case attempt == p.attempt && p.end != nil && uint64(step) >= p.end.Steps:
			over = io.EOF
		default:
			return false
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	return plan, over
}

// commit implements Link.Commit.
func (p *progress) commit(ctx context.Context, rank millrace.Rank, attempt millrace.Attempt, step millrace.Step) error {
	p.fail.Hit("sidecar/commit/before")
	below := uint64(step) + 1
	p.update(func() {
		if at := p.ranks[rank]; at != nil && at.attempt == attempt && at.committed < below {
			at.committed = below
			p.sendCommit(rank, at)
		}
	})
	defer p.fail.Hit("sidecar/commit/after")
	return p.until(ctx, func() bool {
		at := p.ranks[rank]
		return p.failed != nil || at == nil || at.attempt != attempt || at.known >= below
	})
}

// leave notes that a rank's trainer is gone, and reports it to the orchestrator.
func (p *progress) leave(rank millrace.Rank) {
	p.update(func() {
		if at := p.ranks[rank]; at != nil {
			at.left = true
		}
		p.sendLeft(rank)
	})
}

// enter makes an attempt the current one. It drops the plans and the end of the attempt before.
func (p *progress) enter(a millrace.Attempt) {
	if a != p.attempt {
		p.attempt, p.end = a, nil
		clear(p.plans)
		p.up.enter(a)
	}
}

// addPlan keeps a sealed plan. A second copy of a step must be equal: a plan is immutable.
func (p *progress) addPlan(m *proto.Plan, sources []sidecar.SourceNames) error {
	p.fail.Hit("sidecar/plan/before")
	plan, err := wire.PlanFromProto(m)
	if err != nil {
		return err
	}
	broken := p.check(plan)
	p.Lock()
	defer p.Unlock()
	defer p.wake()
	if plan.Attempt < p.attempt {
		return nil
	}
	p.enter(plan.Attempt)
	if broken != nil {
		p.breakOff("the orchestrator sent a part of a plan that its proof does not cover: " + broken.Error() +
			": this must never happen; report it with the run directory")
		return nil
	}
	if old := p.plans[plan.Step]; old != nil {
		if old.Placement != plan.Placement || old.Content != plan.Content || !bytes.Equal(old.State, m.State) {
			p.breakOff(fmt.Sprintf(
				"step %d of attempt %d was planned twice with different content (%s, %s): this must never happen; "+
					"report it with the run directory",
				plan.Step, plan.Attempt, old.Content, plan.Content))
		}
		return nil
	}
	p.plans[plan.Step] = &sidecar.StepPlan{Plan: plan, State: m.State, Sources: sources}
	p.events.Write(event.Record{
		Event: "plan", Stream: string(plan.Stream), Attempt: uint32(plan.Attempt), Term: p.up.highestTerm(),
		Step: int64(plan.Step), Rank: -1, Micro: -1, Digest: plan.Content.String(),
	})
	p.fail.Hit("sidecar/plan/after")
	return nil
}

// addPart keeps a part of a sealed plan, which comes encoded.
func (p *progress) addPart(body []byte, sources []sidecar.SourceNames) error {
	m := &proto.Plan{}
	if err := pbuf.Unmarshal(body, m); err != nil {
		return fmt.Errorf("decode a part of a plan: %w", err)
	}
	return p.addPlan(m, sources)
}

// check verifies a part of a plan on receipt. A whole plan is verified when a batch is built of it.
func (p *progress) check(plan *millrace.Plan) error {
	if plan.Held == nil {
		return nil
	}
	collator, err := p.shapes.Of(plan)
	if err != nil {
		return err
	}
	return seal.VerifyHeld(plan, collator.Shape())
}

// breakOff fails the run for all ranks. The caller holds the lock.
func (p *progress) breakOff(reason string) {
	p.failed = &sidecar.RunError{Reason: reason}
	p.complainOnce(reason)
}

// begin stores the position at which a rank starts, and answers the rank's join. If the join is gone, so is the rank's
// trainer.
func (p *progress) begin(b *proto.Begin) {
	p.update(func() {
		p.enter(millrace.Attempt(b.Attempt))
		at := &position{attempt: p.attempt, committed: b.Step, known: b.Step, begun: true}
		at.left = p.calls[b.Call] == nil
		p.ranks[millrace.Rank(b.Rank)] = at
		p.answer(b.Call, b)
	})
}

// refuse answers a join with a refusal.
func (p *progress) refuse(r *proto.Refusal) { p.update(func() { p.answer(r.Call, r) }) }

func (p *progress) answer(id uint64, msg any) {
	if c := p.calls[id]; c != nil {
		delete(p.calls, id)
		c.answer <- msg
	}
}

// tellPresent sends the orchestrator the ranks that have begun and still have their trainer.
func (p *progress) tellPresent(r *proto.RollCall) {
	p.Lock()
	defer p.Unlock()
	m := &proto.Present{Call: r.Call}
	for rank, at := range p.ranks {
		if at.begun && !at.left {
			m.Ranks = append(m.Ranks, uint32(rank))
		}
	}
	slices.Sort(m.Ranks)
	p.up.send(&proto.SidecarEvent{Event: &proto.SidecarEvent_Present{Present: m}})
}

// confirm notes that the orchestrator has confirmed a commit.
func (p *progress) confirm(c *proto.Committed) {
	p.update(func() {
		if at := p.ranks[millrace.Rank(c.Rank)]; at != nil && at.attempt == millrace.Attempt(c.Attempt) {
			at.known = max(at.known, c.Below)
			p.dropPassed()
		}
	})
}

// dropPassed drops the plans that every rank of this host has passed. It drops none before all ranks have begun,
// because a later rank may begin at an earlier step.
func (p *progress) dropPassed() {
	below, begun := ^uint64(0), 0
	for _, at := range p.ranks {
		if at.attempt == p.attempt {
			below = min(below, at.known)
			begun++
		}
	}
	if begun < p.hosted {
		return
	}
	for step := range p.plans {
		if uint64(step) < below {
			delete(p.plans, step)
		}
	}
}

// finish notes the end of an attempt.
func (p *progress) finish(e *proto.Ended) {
	p.update(func() {
		if millrace.Attempt(e.Attempt) == p.attempt {
			p.end = e
		}
	})
}

// abort notes that the run has failed.
func (p *progress) abort(f *proto.Fatal) {
	p.update(func() { p.failed = &sidecar.RunError{Reason: f.Reason} })
}
