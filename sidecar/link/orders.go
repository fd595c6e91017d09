package link

import (
	"bytes"
	"fmt"
	"slices"

	"millrace"
	"millrace/internal/event"
	"millrace/internal/wire"
	"millrace/proto"
	"millrace/sidecar"
)

// obey takes one order. An order of an older term than one already seen is refused: its sender is fenced.
func (l *Link) obey(order *proto.SidecarOrder) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if term := order.GetFence().GetTerm(); term < l.term {
		return millrace.Errorf(millrace.ErrFenced, "order of term %d after term %d", term, l.term)
	} else if term > l.term {
		l.term = term
		l.cfg.Term(millrace.Term(term))
	}
	defer l.announce()
	switch o := order.GetOrder().(type) {
	case *proto.SidecarOrder_Bye:
		return &replaced{o.Bye.Reason}
	case *proto.SidecarOrder_Welcome:
		l.sources = names(o.Welcome)
		l.mask(o.Welcome.Masks)
	case *proto.SidecarOrder_Masked:
		l.mask(o.Masked.Masks)
	case *proto.SidecarOrder_Alerts:
		l.alert(o.Alerts.Alerts)
	case *proto.SidecarOrder_Loaders:
		return l.direct(o.Loaders)
	case *proto.SidecarOrder_Plan:
		return l.plan(o.Plan)
	case *proto.SidecarOrder_Begin:
		l.begin(o.Begin)
	case *proto.SidecarOrder_RollCall:
		l.send(&proto.SidecarEvent{Event: &proto.SidecarEvent_Present{Present: l.present(o.RollCall.Call)}})
	case *proto.SidecarOrder_Refusal:
		l.answer(o.Refusal.Call, o.Refusal)
	case *proto.SidecarOrder_Ended:
		if millrace.Attempt(o.Ended.Attempt) == l.attempt {
			l.end = o.Ended
		}
	case *proto.SidecarOrder_Failed:
		l.failed = &sidecar.RunError{Reason: o.Failed.Reason}
	case *proto.SidecarOrder_Waiting:
		l.waiting = o.Waiting.Text
	case *proto.SidecarOrder_Committed:
		c := o.Committed
		if p := l.ranks[millrace.Rank(c.Rank)]; p != nil && p.attempt == millrace.Attempt(c.Attempt) {
			p.known = max(p.known, c.Below)
			l.forget()
		}
	}
	return nil
}

// record notes what this host did about a loader, under the loader's term.
func (l *Link) record(what string, step int64, key string, term uint64) {
	l.cfg.Events.Write(event.Record{Event: what, Stream: string(millrace.Train), Attempt: uint32(l.attempt), Term: term, Step: step, Rank: -1, Micro: -1, Key: key})
}

func names(w *proto.Welcome) []sidecar.SourceNames {
	var out []sidecar.SourceNames
	for _, m := range w.Manifests {
		src := sidecar.SourceNames{Name: m.Source}
		for _, sh := range m.Shards {
			src.Shards = append(src.Shards, sh.Name)
		}
		out = append(out, src)
	}
	return out
}

// enter makes an attempt the current one; what belonged to another is forgotten.
func (l *Link) enter(a millrace.Attempt) {
	if a != l.attempt {
		l.attempt, l.end = a, nil
		clear(l.plans)
	}
}

// plan keeps a sealed plan. A second copy must be equal: a slot's value is immutable.
func (l *Link) plan(m *proto.Plan) error {
	l.cfg.Fail.Hit("sidecar/plan/before")
	p, err := wire.PlanFromProto(m)
	if err != nil {
		return err
	}
	if p.Attempt < l.attempt {
		return nil
	}
	l.enter(p.Attempt)
	if old := l.plans[p.Step]; old != nil {
		if old.Placement != p.Placement || old.Content != p.Content || !bytes.Equal(old.State, m.State) {
			reason := fmt.Sprintf("step %d of attempt %d was planned twice with different content (%s, %s): this must never happen; report it with the run directory", p.Step, p.Attempt, old.Content, p.Content)
			l.failed = &sidecar.RunError{Reason: reason}
			l.complain(reason)
		}
		return nil
	}
	l.plans[p.Step] = &sidecar.StepPlan{Plan: p, State: m.State, Sources: l.sources}
	l.cfg.Events.Write(event.Record{Event: "plan", Stream: string(p.Stream), Attempt: uint32(p.Attempt), Term: l.term, Step: int64(p.Step), Rank: -1, Micro: -1, Digest: p.Content.String()})
	l.cfg.Fail.Hit("sidecar/plan/after")
	return nil
}

func (l *Link) begin(b *proto.Begin) {
	l.enter(millrace.Attempt(b.Attempt))
	l.ranks[millrace.Rank(b.Rank)] = &position{attempt: l.attempt, committed: b.Step, known: b.Step, begun: true, left: l.calls[b.Call] == nil}
	l.answer(b.Call, b)
}

// present names the ranks that have begun and whose trainers are there.
func (l *Link) present(call uint64) *proto.Present {
	p := &proto.Present{Call: call}
	for rank, at := range l.ranks {
		if at.begun && !at.left {
			p.Ranks = append(p.Ranks, uint32(rank))
		}
	}
	slices.Sort(p.Ranks)
	return p
}

func (l *Link) answer(id uint64, msg any) {
	if c := l.calls[id]; c != nil {
		delete(l.calls, id)
		c.answer <- msg
	}
}

// forget drops the plans that every rank of this host has passed.
func (l *Link) forget() {
	below, begun := ^uint64(0), 0
	for _, p := range l.ranks {
		if p.attempt == l.attempt {
			below = min(below, p.known)
			begun++
		}
	}
	if begun < l.cfg.Ranks {
		return // one that has yet to begin may stand further back
	}
	for step := range l.plans {
		if uint64(step) < below {
			delete(l.plans, step)
		}
	}
}

// replaced: another process serves these ranks now.
type replaced struct{ reason string }

func (e *replaced) Error() string { return "told to leave: " + e.reason }

// refused: this program has no place in the run. Another try would be refused likewise.
type refused struct{ reason string }

func (e *refused) Error() string { return "refused by the orchestrator: " + e.reason }
