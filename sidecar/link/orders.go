package link

import (
	"context"
	"time"

	"millrace/internal/arena"
	"millrace/proto"
	"millrace/sidecar/link/watch"
	"millrace/sidecar/retrieve"
)

// orders collects rows for requests: one for each loader and purpose, split by size.
type orders struct {
	of    *gathering
	calls []*call
	open  map[orderKey]*call // the newest call
	late  *call              // whose loader's credits pay for hedges; nil: there are none, or they are paid for
	owes  bool               // the credits were too few
}

type orderKey struct {
	address string
	purpose retrieve.Purpose
}

func (g *gathering) newOrders() *orders { return &orders{of: g, open: map[orderKey]*call{}} }

// pay takes the price of all hedges of these orders once. It returns false if the loader's credits are too few.
func (o *orders) pay() bool {
	if o.late != nil {
		o.owes, o.late = !o.of.dir.payHedge(o.late.to.Address), nil
	}
	return !o.owes
}

// add orders the rows of an action of a portion, and reports the requests to it.
func (o *orders) add(p *portion, a retrieve.Action) error {
	g, key := o.of, orderKey{a.Loader.Address, a.Purpose}
	first := len(g.parts)
	var x *part
	for _, k := range a.Rows {
		i := p.indices[k]
		s := &g.payload.plan.Assignments[i]
		c, bytes := o.open[key], rowBytes(s)
		if c == nil || !c.fits(bytes+partBytes(p), int(s.Length)+1) {
			c, x = g.newCall(a.Loader, a.Purpose), nil
			o.open[key], o.calls = c, append(o.calls, c)
		}
		if x == nil {
			x = c.begin(p, a.Loader, retrieve.Request(len(g.parts)))
			g.parts = append(g.parts, x)
			c.req.Part[len(c.req.Part)-1].InPlace = !a.Purpose.IsAgain() && !a.Loader.IsRemote &&
				g.places.isOpen(p.key.source)
		}
		c.add(k, i, s, bytes)
	}
	for _, x := range g.parts[first:] {
		e := retrieve.Event{Kind: retrieve.Sent, Request: x.number, Loader: a.Loader, Purpose: a.Purpose, Rows: x.rows}
		if err := g.on(p, e); err != nil {
			return err
		}
	}
	return nil
}

func (g *gathering) newCall(to *retrieve.Loader, why retrieve.Purpose) *call {
	plan := g.payload.plan
	return &call{to: to, purpose: why, req: &proto.FetchRequest{
		Fence: &proto.Fence{Stream: string(plan.Stream), Attempt: uint32(plan.Attempt)},
		Step:  uint64(plan.Step), Hedge: why.IsHedge(), Again: why.IsAgain(),
	}}
}

// start sends the requests. It watches the heartbeats of the loaders that are asked first.
func (o *orders) start() {
	g := o.of
	for _, c := range o.calls {
		switch c.purpose {
		case retrieve.Hedge, retrieve.Help:
			g.fail.Hit("sidecar/hedge/before")
		case retrieve.Second, retrieve.Again:
			g.fail.Hit("sidecar/again/before")
		}
		g.giveMemory(c)
		ctx, cancel := context.WithCancel(g.ctx)
		c.cancel, c.began = cancel, g.clock.Now()
		if c.purpose == retrieve.Ask {
			c.watched = g.watch.Attend(watch.Process{
				Name: c.to.Name, Address: c.to.Address, Beat: c.to.Beat, IsRemote: c.to.IsRemote,
				Up: c.to.Up,
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

// giveMemory gives a call to a loader of this host memory for its rows: an arena that the loader writes to, or else
// memory of this process, for rows that this process reads in place. Rows of another host stay in their messages.
func (g *gathering) giveMemory(c *call) {
	g.payload.calls = append(g.payload.calls, c)
	if c.to.IsRemote {
		return
	}
	c.lease = g.pool.Take(c.to.Address, arena.Room(c.size, len(c.index)))
	if c.lease == nil {
		c.tokens = make([]uint32, c.size)
		return
	}
	c.tokens, c.req.Arena, c.req.Gone = c.lease.Tokens, c.lease.Name, g.pool.Gone(c.to.Address)
	c.marks = arena.MarksOf(c.tokens, c.size, len(c.index))
	c.marks.Clear()
}

// expect sets the time after which the next reply of a call is late.
func (g *gathering) expect(c *call, now time.Time) {
	c.lateAt = time.Time{}
	if d := g.dir.lateAfter(c.to.Address); d > 0 {
		c.lateAt = now.Add(d)
	}
}
