package link

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"millrace"
	"millrace/internal/arena"
	"millrace/internal/event"
	"millrace/internal/wire"
	"millrace/proto"
	"millrace/sidecar/link/watch"
)

// errNobody is the error if the directory names no loader of the stripe.
var errNobody = errors.New("none is there")

// judgedDead is the error if the watcher judges a loader dead.
type judgedDead struct{ verdict string }

func (e *judgedDead) Error() string { return "it is " + e.verdict }

// isLost reports whether an error means that the loader is dead, silent or out of reach.
func isLost(err error) bool {
	var dead *judgedDead
	return errors.As(err, &dead) || status.Code(err) == codes.Unavailable || errors.Is(err, context.Canceled)
}

// isFinal reports whether every other try would end with the same error.
func isFinal(err error) bool {
	return errors.Is(err, millrace.ErrBadSample) || errors.Is(err, millrace.ErrDamaged) ||
		errors.Is(err, millrace.ErrMismatch) || errors.Is(err, millrace.ErrInvalid)
}

// advance takes the next action of each portion that is ready. Portions with the same action of the same loader share
// its requests.
func (g *gathering) advance() error {
	for len(g.ready) > 0 {
		due := g.ready
		g.ready = nil
		g.dir.name(due)
		todos := g.todos(due)
		out := g.newOrders()
		for k, p := range due {
			g.act(p, todos[k], out)
		}
		out.start()
	}
	return nil
}

// todos lists the missing rows of portions.
func (g *gathering) todos(of []*portion) []todo {
	out := make([]todo, len(of))
	g.masks.Lock()
	defer g.masks.Unlock()
	for k, p := range of {
		out[k] = p.missing(g.payload, g.masks)
	}
	return out
}

// act takes the next action of one portion.
func (g *gathering) act(p *portion, t todo, out *orders) {
	switch {
	case len(t.due()) == 0:
		p.state, p.fault = done, nil
		p.reason.Store(nil)
		g.left--
	case p.fault != nil && len(t.plain) > 0 && p.spare != nil:
		p.fault.before = len(t.due())
		g.noteHedge(p)
		out.add(p, p.spare, help, t.plain)
	case p.fault != nil:
		g.rest(p, t.due(), p.fault)
	case len(t.plain)+len(t.again) == 0:
		g.haveMasked(p, t.lost)
	case p.using == nil:
		g.rest(p, t.due(), &fault{err: errNobody})
	case len(t.plain) > 0:
		g.because(p, t.plain, reason{
			format: "source %s (shard %s): %s was asked", more: []any{p.using.name}, asked: p.using,
		})
		out.add(p, p.using, ask, t.plain)
	default:
		from, purpose := p.spare, second // the fault may be in the loader
		if p.spare == nil || p.tried {
			from, purpose = p.using, again
		}
		g.because(p, t.again, reason{
			format: "a second reading of source %s (shard %s) by %s", more: []any{from.name}, isTrouble: true,
			asked: from,
		})
		out.add(p, from, purpose, t.again)
	}
}

// orders collects rows for requests: one for each loader and purpose, split by size.
type orders struct {
	of    *gathering
	calls []*call
	open  map[orderKey]*call // the newest call
}

type orderKey struct {
	address string
	purpose purpose
}

func (g *gathering) newOrders() *orders { return &orders{of: g, open: map[orderKey]*call{}} }

// add orders rows of a portion from a loader.
func (o *orders) add(p *portion, m *member, why purpose, which []int) {
	if p.state = asking; why != hedge {
		p.due = len(which)
	}
	key := orderKey{m.address, why}
	var x *part
	for _, i := range which {
		a := &o.of.payload.plan.Assignments[i]
		c, bytes := o.open[key], rowBytes(a)
		if c == nil || !c.fits(bytes+partBytes(p), int(a.Length)+1) {
			c, x = o.of.newCall(m, why), nil
			o.open[key], o.calls = c, append(o.calls, c)
		}
		if x == nil {
			if x = c.begin(p, m); why == hedge {
				p.late = append(p.late, x)
			} else {
				p.main = append(p.main, x)
			}
			c.req.Part[len(c.req.Part)-1].InPlace = !why.isAgain() && !m.isRemote &&
				o.of.places.isOpen(p.key.source)
		}
		c.add(i, a, bytes)
	}
}

func (g *gathering) newCall(m *member, why purpose) *call {
	plan := g.payload.plan
	return &call{to: m, purpose: why, req: &proto.FetchRequest{
		Fence: &proto.Fence{Stream: string(plan.Stream), Attempt: uint32(plan.Attempt)},
		Step:  uint64(plan.Step), Hedge: why.isHedge(), Again: why.isAgain(),
	}}
}

// start sends the requests. It watches the heartbeats of the loaders that are asked first.
func (o *orders) start() {
	g := o.of
	for _, c := range o.calls {
		switch c.purpose {
		case hedge, help:
			g.fail.Hit("sidecar/hedge/before")
		case second, again:
			g.fail.Hit("sidecar/again/before")
		}
		g.furnish(c)
		ctx, cancel := context.WithCancel(g.ctx)
		c.cancel, c.began = cancel, g.clock.Now()
		if c.purpose == ask {
			c.watched = g.watch.Attend(watch.Process{
				Name: c.to.name, Address: c.to.address, Beat: c.to.beat, IsRemote: c.to.isRemote,
				Up: c.to.up,
			})
			c.life = c.watched.Life()
			g.expect(c, c.began)
		}
		if silent := g.watch.Silence(c.watched); silent != nil {
			g.group.Go(func() error { g.listen(ctx, c, silent); return nil })
		}
		g.calls = append(g.calls, c)
		g.group.Go(func() error { g.receive(ctx, c); return nil })
	}
}

// furnish gives a call to a loader of this host memory for its rows: an arena that the loader writes to, or else memory
// of this process, for rows that this process reads in place. Rows of another host stay in their messages.
func (g *gathering) furnish(c *call) {
	g.payload.calls = append(g.payload.calls, c)
	if c.to.isRemote {
		return
	}
	c.lease = g.pool.Take(c.to.address, arena.Room(c.size, len(c.index)))
	if c.lease == nil {
		c.tokens = make([]uint32, c.size)
		return
	}
	c.tokens, c.req.Arena, c.req.Gone = c.lease.Tokens, c.lease.Name, g.pool.Gone(c.to.address)
	c.marks = arena.MarksOf(c.tokens, c.size, len(c.index))
	c.marks.Clear()
}

// ended handles the end of a part with err; nil: it is complete. It returns a final error.
func (g *gathering) ended(x *part, err error) error {
	p, why := x.of, x.call.purpose
	if x.over {
		return nil
	}
	if isLost(err) {
		if final := g.salvage(x); final != nil {
			return final
		}
		if x.over && why != hedge { // all rows are here
			g.dir.failOver(p.key, x.member, g.payload.plan.Step, err.Error())
			return nil
		}
	}
	if why == hedge {
		// The loader may still answer, so a standby that fails or cannot decode a document changes nothing. Different
		// tokens end the run.
		if g.leave(x); isFinal(err) && !errors.Is(err, millrace.ErrBadSample) {
			return err
		}
		return nil
	}
	if err == nil && p.waitsBeside(x) {
		g.leave(x)
		return nil
	}
	g.release(p)
	switch why {
	case help:
		return g.helped(p, err)
	case second:
		if p.tried = err != nil && !isFinal(err); p.tried {
			g.makeReady(p)
			return nil
		}
	case again:
		p.tried = false
	}
	return g.react(p, x.member, err)
}

// helped continues after the standby of a loader with a fault was asked. The standby stays the standby, because every
// host may have the fault.
func (g *gathering) helped(p *portion, err error) error {
	var bad *wire.BadSamples
	if isFinal(err) && !errors.As(err, &bad) {
		return err
	}
	f := p.fault
	p.fault = nil
	if due := g.todos([]*portion{p})[0].due(); len(due) >= f.before {
		g.rest(p, due, f)
		return nil
	}
	g.makeReady(p)
	return nil
}

// react handles the end of a request to a loader with err. It returns a final error. It replaces a lost loader by its
// standby, or waits for a new loader. A loader may answer with a fault of its own, for example that its host cannot
// read. Then the standby is asked too.
func (g *gathering) react(p *portion, asked *member, err error) error {
	var bad *wire.BadSamples
	switch {
	case err == nil, errors.As(err, &bad) && p.convict(g.payload.plan, bad.Samples):
		g.makeReady(p)
		return nil
	case isFinal(err):
		return err
	}
	// A standby that took over here serves no stripe if it was fenced before the orchestrator noted the switch.
	isFenced := errors.Is(err, millrace.ErrFenced)
	isGone := isLost(err) || isFenced && g.dir.hasSwitched(p.key)
	if isGone && g.dir.failOver(p.key, asked, g.payload.plan.Step, err.Error()) {
		g.makeReady(p)
		return nil
	}
	f := &fault{asked: asked, err: err}
	if !isLost(err) && !isFenced {
		p.fault = f // advance asks the standby, if there is one
		g.makeReady(p)
		return nil
	}
	g.rest(p, g.todos([]*portion{p})[0].due(), f)
	return nil
}

// rest lets a portion wait until the directory changes, or for a short time.
func (g *gathering) rest(p *portion, due []int, f *fault) {
	name := ""
	if f.asked != nil {
		name = f.asked.name + ": "
	}
	g.because(p, due, reason{
		format: "a loader of source %s (shard %s): %s%v; it is being restarted", more: []any{name, f.err},
		isTrouble: true,
	})
	p.state, p.fault, p.retry = resting, nil, g.clock.Now().Add(retryAfter)
	g.resting++
	select {
	case <-p.saw:
		g.makeReady(p)
	default:
	}
}

// askStandbys asks the standbys for the missing rows of a call that is late, while its loader is still asked. The
// loader's credits pay for it.
func (g *gathering) askStandbys(c *call) {
	var late []*portion
	var rows [][]int
	g.dir.name(partsOf(c.parts))
	for _, x := range c.parts {
		if x.over || x.of.spare == nil {
			continue
		}
		if which := g.missingOf(x); len(which) > 0 {
			late, rows = append(late, x.of), append(rows, which)
		}
	}
	if len(late) == 0 || !g.dir.payHedge(c.to.address) {
		return
	}
	out := g.newOrders()
	for k, p := range late {
		g.noteHedge(p)
		out.add(p, p.spare, hedge, rows[k])
	}
	out.start()
}

// missingOf lists the rows of a part that are neither here nor masked.
func (g *gathering) missingOf(x *part) (which []int) {
	g.masks.Lock()
	defer g.masks.Unlock()
	for _, i := range x.which {
		if g.payload.tokens[i].IsNone() && !g.masks.hides(x.of.key.source, &g.payload.plan.Assignments[i]) {
			which = append(which, i)
		}
	}
	return which
}

// noteHedge records that a portion's standby is asked.
func (g *gathering) noteHedge(p *portion) {
	step, m := int64(g.payload.plan.Step), p.spare
	g.up.record(event.Record{Event: "hedged", Step: step, Key: p.key.source + " " + m.name, Term: m.term})
}

// noteSalvage records the number of rows that a lost loader has left in an arena.
func (g *gathering) noteSalvage(x *part, rows int) {
	g.up.record(event.Record{
		Event: "salvaged", Step: int64(g.payload.plan.Step), Term: x.member.term,
		Key: fmt.Sprintf("%s %d %s %d", x.of.key.source, x.of.key.stripe, x.member.name, rows),
	})
}

// haveMasked asks the orchestrator to mask rows that two readings could not decode.
func (g *gathering) haveMasked(p *portion, which []int) {
	found := map[int]*proto.Quarantine{}
	for _, i := range which {
		found[i] = p.bad[uint64(g.payload.plan.Assignments[i].Ordinal)].sample
	}
	g.because(p, which, reason{
		format: "the orchestrator to mask unreadable segments of source %s (shard %s)", isTrouble: true,
	})
	g.masks.accuse(g.payload.plan, p.key.source, found)
	p.state, p.lost = masking, which
	g.masking++
	g.unmask() // another host may have reported them
}

// expect sets the time after which the next reply of a call is late.
func (g *gathering) expect(c *call, now time.Time) {
	c.lateAt = time.Time{}
	if d := g.dir.lateAfter(c.to.address); d > 0 {
		c.lateAt = now.Add(d)
	}
}
