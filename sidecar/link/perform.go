package link

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"millrace"
	"millrace/internal/event"
	"millrace/proto"
	"millrace/sidecar/retrieve"
)

// judgedDead is the error if the watcher judges a loader dead.
type judgedDead struct{ verdict string }

func (e *judgedDead) Error() string { return "it " + e.is() }

func (e *judgedDead) is() string { return "is " + e.verdict }

// isLost reports whether an error means that the loader is dead, silent or out of reach.
func isLost(err error) bool {
	var dead *judgedDead
	return errors.As(err, &dead) || status.Code(err) == codes.Unavailable || errors.Is(err, context.Canceled)
}

// isFinal reports whether every other try would end with the same error.
func isFinal(err error) bool {
	return errors.Is(err, millrace.ErrDamaged) || errors.Is(err, millrace.ErrMismatch) ||
		errors.Is(err, millrace.ErrInvalid)
}

// kindOf returns the event that the end of a part with err is. A standby that took over here serves no stripe if it was
// fenced before the orchestrator noted the switch.
func (g *gathering) kindOf(x *part, err error) retrieve.Kind {
	switch {
	case err == nil:
		return retrieve.Complete
	case errors.Is(err, millrace.ErrBadSample):
		return retrieve.Bad
	case isFinal(err):
		return retrieve.Final
	case isLost(err):
		return retrieve.Lost
	case !errors.Is(err, millrace.ErrFenced):
		return retrieve.Faulty
	case g.dir.hasSwitched(x.of.key):
		return retrieve.Deposed
	}
	return retrieve.Fenced
}

// advance takes the next action of each portion that is ready. Portions with the same action of the same loader share
// its requests.
func (g *gathering) advance() error {
	for len(g.ready) > 0 {
		due, now := g.ready, g.clock.Now()
		g.ready = nil
		g.dir.name(due)
		g.orders = g.newOrders()
		for _, p := range due {
			if err := g.hide(p); err != nil {
				return err
			}
			e := retrieve.Event{Kind: retrieve.Due, Using: p.using, Spare: p.spare, Now: now}
			if err := g.on(p, e); err != nil {
				return err
			}
		}
		g.orders.start()
	}
	return nil
}

// askStandbys asks the standbys for the missing rows of a call that is late, while its loader is still asked. The
// loader's credits pay for it.
func (g *gathering) askStandbys(c *call) error {
	g.dir.name(partsOf(c.parts))
	g.orders = g.newOrders()
	g.orders.late = c
	for _, x := range c.parts {
		if err := g.hide(x.of); err != nil {
			return err
		}
		e := retrieve.Event{Kind: retrieve.Late, Request: x.number, Using: x.of.using, Spare: x.of.spare,
			Now: g.clock.Now()}
		if err := g.on(x.of, e); err != nil {
			return err
		}
	}
	g.orders.start()
	return nil
}

// on gives an event to a portion, and carries out the actions that follow, in their order.
func (g *gathering) on(p *portion, e retrieve.Event) error {
	before, first := p.State(), len(g.actions)
	g.actions = p.On(e, g.actions)
	if after := p.State(); after != before {
		g.count(p, before, after)
	}
	for k := first; k < len(g.actions); k++ {
		if err := g.perform(p, g.actions[k]); err != nil {
			return err
		}
	}
	g.actions = g.actions[:first]
	return nil
}

// count follows a change of a portion's state.
func (g *gathering) count(p *portion, before, after retrieve.State) {
	switch before {
	case retrieve.Masking:
		g.masking--
	case retrieve.Resting:
		g.resting--
	}
	switch after {
	case retrieve.Ready:
		g.ready = append(g.ready, p)
	case retrieve.Masking:
		g.masking++
	case retrieve.Resting:
		g.resting++
	case retrieve.Done:
		p.reason.Store(nil)
		g.left--
	}
}

// perform carries out one action of a portion. Its error is final.
func (g *gathering) perform(p *portion, a retrieve.Action) error {
	switch a.Kind {
	case retrieve.Send:
		return g.order(p, a)
	case retrieve.Take:
		i := p.indices[a.Row]
		g.payload.tokens[i], g.from[i] = g.came.tokens, g.parts[a.Request].loader
		g.payload.setFields(i, g.came.fields)
	case retrieve.Compare:
		return g.compare(p, p.indices[a.Row], g.parts[a.Request].loader)
	case retrieve.Leave:
		g.leave(g.parts[a.Request])
	case retrieve.Salvage:
		if err := g.salvage(g.parts[a.Request]); err != nil {
			return err
		}
		return g.on(p, retrieve.Event{Kind: retrieve.Salvaged, Request: a.Request, Loader: a.Loader,
			Purpose: a.Purpose, Why: a.Why, Now: g.clock.Now()})
	case retrieve.Switch:
		is := g.dir.failOver(p.key, a.Loader, g.payload.plan.Step, a.Why.Error())
		return g.on(p, retrieve.Event{Kind: retrieve.Switched, IsReplaced: is, Loader: a.Loader, Why: a.Why,
			Now: g.clock.Now()})
	case retrieve.Mask:
		return g.haveMasked(p, a.Rows)
	case retrieve.Rest:
		name := ""
		if a.Loader != nil {
			name = a.Loader.Name + ": "
		}
		g.setReason(p, a.Rows, reason{
			format: "a loader of source %s (shard %s): %s%v; it is being restarted", more: []any{name, a.Why},
			isTrouble: true,
		})
	case retrieve.Wait:
		g.setReason(p, a.Rows, reason{
			format: "a loader of source %s (shard %s): %s %s", isTrouble: true,
			more: []any{a.Loader.Name, a.Why.(*judgedDead).is()}, asked: a.Loader,
		})
	case retrieve.Fail:
		return a.Why
	}
	return nil
}

// order adds the requests of an action to those that are being collected.
func (g *gathering) order(p *portion, a retrieve.Action) error {
	switch a.Purpose {
	case retrieve.Ask:
		g.setReason(p, a.Rows, reason{
			format: "source %s (shard %s): %s was asked", more: []any{a.Loader.Name}, asked: a.Loader,
		})
	case retrieve.Hedge:
		if !g.orders.pay() {
			return nil
		}
		g.noteHedge(p, a.Loader)
	case retrieve.Help:
		g.noteHedge(p, a.Loader)
	default:
		g.setReason(p, a.Rows, reason{
			format: "a second reading of source %s (shard %s) by %s", more: []any{a.Loader.Name}, isTrouble: true,
			asked: a.Loader,
		})
	}
	return g.orders.add(p, a)
}

// compare compares the row that has come with the copy that was taken. A difference ends the run.
func (g *gathering) compare(p *portion, i int, from *retrieve.Loader) error {
	was, is := g.payload.tokens[i].IDs(), g.came.tokens.IDs()
	if slices.Equal(was, is) {
		return nil
	}
	return g.dump.differ(g.payload.plan, i, p.key.source, g.from[i].Name, was, from.Name, is)
}

// leave ends the wait of a portion for a part. A request that no portion waits for is cancelled.
func (g *gathering) leave(x *part) {
	x.over = true
	c := x.call
	if c.open--; c.open == 0 && c.awaited > 0 {
		c.cancel()
		g.finish(c)
	}
}

// finish takes a call out of use. Its stream may still be open.
func (g *gathering) finish(c *call) {
	if c.isFinished {
		return
	}
	c.isFinished = true
	g.detach(c)
	g.calls = slices.DeleteFunc(g.calls, func(other *call) bool { return other == c })
	switch c.purpose {
	case retrieve.Hedge, retrieve.Help:
		g.fail.Hit("sidecar/hedge/after")
	case retrieve.Second, retrieve.Again:
		g.fail.Hit("sidecar/again/after")
	}
}

// detach ends the watch of a call's loader.
func (g *gathering) detach(c *call) {
	g.watch.Detach(c.watched)
	c.watched = nil
}

// noteHedge records that a portion's standby is asked.
func (g *gathering) noteHedge(p *portion, to *retrieve.Loader) {
	step := int64(g.payload.plan.Step)
	g.up.record(event.Record{Event: "hedged", Step: step, Key: p.key.source + " " + to.Name, Term: to.Term})
}

// noteSalvage records the number of rows that a lost loader has left in an arena.
func (g *gathering) noteSalvage(x *part, rows int) {
	g.up.record(event.Record{
		Event: "salvaged", Step: int64(g.payload.plan.Step), Term: x.loader.Term,
		Key: fmt.Sprintf("%s %d %s %d", x.of.key.source, x.of.key.stripe, x.loader.Name, rows),
	})
}

// haveMasked asks the orchestrator to mask rows that two readings could not decode.
func (g *gathering) haveMasked(p *portion, rows []int) error {
	found := map[int]*proto.Quarantine{}
	for _, k := range rows {
		i := p.indices[k]
		found[i] = p.bad[uint64(g.payload.plan.Assignments[i].Ordinal)]
	}
	g.setReason(p, rows, reason{
		format: "the orchestrator to mask unreadable segments of source %s (shard %s)", isTrouble: true,
	})
	g.masks.reportBad(g.payload.plan, p.key.source, found)
	return g.unmask() // another host may have reported them
}
