package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"millrace"
	"millrace/internal/wire"
	"millrace/proto"
	"millrace/sidecar"
)

// gathering gets the rows of one step. One loop owns its state. It asks each loader once for all portions that the
// loader serves, split by size. A portion whose loader dies or fails is asked of another one; the others go on.
type gathering struct {
	*suppliers
	payload *payload
	sources []sidecar.SourceNames
	from    []*member // by assignment: the loader whose row counts

	unrouted map[uint32][]int // by source without a known stripe: the assignments
	portions []*portion
	ready    []*portion // in state ready
	left     int        // portions that are not done
	masking  int        // portions in state masking
	resting  int        // portions in state resting
	calls    []*call    // not finished

	group   errgroup.Group
	ctx     context.Context
	heard   chan heardOf
	changed <-chan struct{} // closed when the directory changes
	masked  <-chan struct{} // closed when a mask is added
	timer   <-chan time.Time
	timerAt time.Time

	told atomic.Pointer[outlook] // for explain
}

// lingerFor is the longest wait for a last reply without rows.
const lingerFor = 5 * time.Millisecond

// gather returns when all rows are here or masked. It goes on when loaders are replaced.
func (s *suppliers) gather(ctx context.Context, p *payload, wanted [][]int) error {
	g := &gathering{
		suppliers: s, payload: p, sources: s.dir.sourceNames(), from: make([]*member, len(p.tokens)),
		unrouted: map[uint32][]int{}, heard: make(chan heardOf, 16),
	}
	for source, indices := range wanted {
		if len(indices) > 0 {
			g.unrouted[uint32(source)] = indices
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	g.ctx = ctx
	defer func() {
		cancel()
		for _, c := range g.calls {
			g.detach(c)
		}
		_ = g.group.Wait()
	}()
	w := s.waits.begin(p.plan.Step, g.explain)
	defer s.waits.end(w)
	g.route()
	for {
		if err := g.advance(); err != nil {
			return err
		}
		if g.left == 0 && len(g.unrouted) == 0 {
			return g.linger()
		}
		if err := g.await(); err != nil {
			return err
		}
	}
}

// linger waits for a moment for the last replies of loaders that have sent all rows. After it their arenas can be used
// again, and their streams end by themselves.
func (g *gathering) linger() error {
	over := g.clock.After(lingerFor)
	for slices.ContainsFunc(g.calls, func(c *call) bool { return c.awaited == 0 }) {
		select {
		case h := <-g.heard:
			if err := g.handle(h); err != nil {
				return err
			}
		case <-over:
			return nil
		case <-g.ctx.Done():
			return g.ctx.Err()
		}
	}
	return nil
}

// await blocks until something happens, and handles it.
func (g *gathering) await() error {
	g.arm()
	select {
	case h := <-g.heard:
		return g.handle(h)
	case <-g.changed:
		g.route()
		return g.redirect()
	case <-g.masked:
		g.unmask()
	case <-g.timer:
		g.timer = nil
		return g.wake(g.clock.Now())
	case <-g.ctx.Done():
		return g.ctx.Err()
	}
	return nil
}

// route makes the portions of the sources whose stripes the directory knows.
func (g *gathering) route() {
	g.changed = g.dir.changes()
	defer g.tell()
	for source, indices := range g.unrouted {
		name := g.sources[source].Name
		stripes := g.dir.stripesOf(name)
		if stripes == 0 {
			continue
		}
		delete(g.unrouted, source)
		of := make([]*portion, stripes)
		for _, i := range indices {
			k := g.payload.plan.Assignments[i].Ordinal.Stripe(uint64(stripes))
			if of[k] == nil {
				of[k] = &portion{key: stripeKey{name, uint32(k)}}
			}
			of[k].indices = append(of[k].indices, i)
		}
		of = slices.DeleteFunc(of, func(p *portion) bool { return p == nil })
		g.portions, g.ready, g.left = append(g.portions, of...), append(g.ready, of...), g.left+len(of)
	}
}

// handle handles a message of a call.
func (g *gathering) handle(h heardOf) error {
	c := h.call
	switch {
	case c.isFinished:
		return nil // cancelled, or its stream ends after the last reply
	case h.silent:
		return g.suspect(c)
	case h.reply != nil:
		return g.take(c, h.reply)
	}
	g.finish(c)
	for _, x := range c.parts {
		err := h.err
		if errors.Is(err, io.EOF) {
			err = x.leftOut(g.payload)
		}
		if err := g.ended(x, err); err != nil {
			return err
		}
	}
	return nil
}

// take files the rows of a reply, and handles its failed parts.
func (g *gathering) take(c *call, r *proto.FetchReply) error {
	g.fail.Hit("sidecar/reply/before")
	now, step := g.clock.Now(), g.payload.plan.Step
	if c.purpose == ask {
		if !c.isAnswered {
			c.isAnswered = true
			g.dir.noteTime(c.to.address, now.Sub(c.began))
		}
		g.expect(c, now)
	}
	if err := c.take(g.payload.plan, r, g.file); err != nil {
		return fmt.Errorf("payload of step %d from %s: %w", step, c.to.name, err)
	}
	g.fail.Hit("sidecar/reply/after")
	for _, f := range r.Failed {
		if uint64(f.Part) >= uint64(len(c.parts)) {
			return millrace.Errorf(millrace.ErrMismatch, "payload of step %d from %s: part %d of %d", step, c.to.name,
				f.Part, len(c.parts))
		}
		if err := g.ended(c.parts[f.Part], wire.FromPartFailed(f)); err != nil {
			return err
		}
	}
	if !r.Last {
		return nil
	}
	c.isComplete = true
	g.pool.Forgotten(c.to.address, c.req.Gone)
	return g.handle(heardOf{call: c, err: io.EOF})
}

// file stores one row. If a later copy differs from the first, the error ends the run.
func (g *gathering) file(x *part, i int, row row) error {
	p := x.of
	if x.over {
		return nil // another loader is asked, or the row is not needed
	}
	if !x.heard && !x.call.purpose.isHedge() {
		x.heard = true
		g.dir.noteReply(p.key, x.member, g.payload.plan.Step)
	}
	first := g.payload.tokens[i]
	if !first.IsNone() {
		was, is := first.IDs(), row.tokens.IDs()
		if slices.Equal(was, is) {
			return nil
		}
		return g.dump.differ(g.payload.plan, i, p.key.source, g.from[i].name, was, x.member.name, is)
	}
	g.payload.tokens[i], g.from[i] = row.tokens, x.member
	g.payload.setFields(i, row.fields)
	if p.due--; p.due == 0 {
		p.tried = false
		g.release(p)
		g.makeReady(p)
	}
	return nil
}

// makeReady makes the next action of a portion due.
func (g *gathering) makeReady(p *portion) {
	switch p.state {
	case ready, done:
		return
	case masking:
		g.masking--
	case resting:
		g.resting--
	}
	p.state = ready
	g.ready = append(g.ready, p)
}

// release ends the wait of a portion for all its requests. A request that no portion waits for is cancelled.
func (g *gathering) release(p *portion) {
	for _, x := range p.main {
		g.leave(x)
	}
	for _, x := range p.late {
		g.leave(x)
	}
	p.late, p.main = nil, nil
}

// leave ends the wait of a portion for one request.
func (g *gathering) leave(x *part) {
	if x.over {
		return
	}
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
	case hedge, help:
		g.fail.Hit("sidecar/hedge/after")
	case second, again:
		g.fail.Hit("sidecar/again/after")
	}
}

// detach ends the watch of a call's loader.
func (g *gathering) detach(c *call) {
	g.watch.Detach(c.watched)
	c.watched = nil
}

// redirect follows a change of the directory.
func (g *gathering) redirect() error {
	g.dir.name(g.portions)
	for _, p := range g.portions {
		if p.state == resting {
			g.makeReady(p)
		}
		if p.state != asking || p.main[0].call.purpose != ask {
			continue
		}
		if p.using != p.main[0].member { // another loader is asked now
			for _, x := range slices.Clone(p.main) {
				if err := g.salvage(x); err != nil {
					return err
				}
			}
			g.release(p)
			g.makeReady(p)
			continue
		}
		for _, x := range p.main {
			if x.call.suspected != "" && p.spare != nil {
				if err := g.ended(x, &judgedDead{x.call.suspected}); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// suspect follows the watcher's verdict on the loader of a call. Portions with a standby ask it. The others wait on.
func (g *gathering) suspect(c *call) error {
	c.suspected = g.watch.Judged(c.watched)
	g.dir.name(partsOf(c.parts))
	for _, x := range slices.Clone(c.parts) {
		if x.over {
			continue
		}
		if x.of.spare == nil {
			g.because(x.of, x.which, reason{
				format: "a loader of source %s (shard %s): %s is %s", isTrouble: true,
				more: []any{x.member.name, c.suspected}, asked: x.member,
			})
			continue
		}
		if err := g.ended(x, &judgedDead{c.suspected}); err != nil {
			return err
		}
	}
	return nil
}

func partsOf(parts []*part) (out []*portion) {
	for _, x := range parts {
		out = append(out, x.of)
	}
	return out
}

// unmask continues with the portions whose rows are masked now.
func (g *gathering) unmask() {
	g.masks.Lock()
	defer g.masks.Unlock()
	g.masked = nil
	for _, p := range g.portions {
		if p.state == masking && !slices.ContainsFunc(p.lost, func(i int) bool {
			return !g.masks.hides(p.key.source, &g.payload.plan.Assignments[i])
		}) {
			g.makeReady(p)
		}
	}
	if g.masking > 0 {
		g.masked = g.masks.changed
	}
}

// arm sets the timer to the next time at which a reply is late or a try is due.
func (g *gathering) arm() {
	var next time.Time
	earliest := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	for _, c := range g.calls {
		earliest(c.lateAt)
	}
	if g.resting > 0 {
		for _, p := range g.portions {
			if p.state == resting {
				earliest(p.retry)
			}
		}
	}
	if next.IsZero() || g.timer != nil && !next.Before(g.timerAt) {
		return // a timer that fires too early is set again
	}
	g.timer, g.timerAt = g.clock.After(max(next.Sub(g.clock.Now()), 1)), next
}

// wake handles late replies and due tries.
func (g *gathering) wake(now time.Time) error {
	for _, c := range slices.Clone(g.calls) {
		if !c.lateAt.IsZero() && !now.Before(c.lateAt) {
			c.lateAt = time.Time{}
			g.askStandbys(c)
		}
	}
	if g.resting > 0 {
		for _, p := range g.portions {
			if p.state == resting && !now.Before(p.retry) {
				g.makeReady(p)
			}
		}
	}
	return nil
}
