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
	"millrace/sidecar/retrieve"
)

// gathering gets the rows of one step. One loop owns its state. It turns replies, verdicts, changes and times into
// events of portions, and carries out the actions that follow. It asks each loader once for all portions that the
// loader serves, split by size.
type gathering struct {
	*suppliers
	payload *payload
	sources []sidecar.SourceNames
	from    []*retrieve.Loader // by assignment: the loader whose row counts

	unrouted map[uint32][]int // by source without a known stripe: the assignments
	portions []*portion
	ready    []*portion // in state Ready
	left     int        // portions that are not done
	masking  int        // portions in state Masking
	resting  int        // portions in state Resting
	calls    []*call    // not finished
	parts    []*part    // by the numbers of their requests
	orders   *orders    // that are being collected

	actions []retrieve.Action // room for those of one event
	came    row               // the row of the event in hand

	group      errgroup.Group
	ctx        context.Context
	callEvents chan callEvent
	changed    <-chan struct{} // closed when the directory changes
	masked     <-chan struct{} // closed when a mask is added; nil: no portion waits for one
	timer      <-chan time.Time
	timerAt    time.Time

	outlook atomic.Pointer[outlook] // for explain
}

// lastWait is the longest wait for a last reply without rows.
const lastWait = 5 * time.Millisecond

// gather returns when all rows are here or masked. It continues when loaders are replaced.
func (s *suppliers) gather(ctx context.Context, p *payload, wanted [][]int) error {
	g := &gathering{
		suppliers: s, payload: p, sources: s.dir.sourceNames(), from: make([]*retrieve.Loader, len(p.tokens)),
		unrouted: map[uint32][]int{}, callEvents: make(chan callEvent, 16),
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
			return g.awaitLast()
		}
		if err := g.await(); err != nil {
			return err
		}
	}
}

// awaitLast waits for a moment for the last replies of loaders that have sent all rows. After it their arenas can be
// used again, and their streams end by themselves.
func (g *gathering) awaitLast() error {
	over := g.clock.After(lastWait)
	for slices.ContainsFunc(g.calls, func(c *call) bool { return c.awaited == 0 }) {
		select {
		case h := <-g.callEvents:
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
	case h := <-g.callEvents:
		return g.handle(h)
	case <-g.changed:
		g.route()
		return g.redirect()
	case <-g.masked:
		return g.unmask()
	case <-g.timer:
		g.timer = nil
		return g.wake(g.clock.Now())
	case <-g.ctx.Done():
		return g.ctx.Err()
	}
}

// route makes the portions of the sources whose stripes the directory knows.
func (g *gathering) route() {
	g.changed = g.dir.changes()
	defer g.publish()
	for source, indices := range g.unrouted {
		name := g.sources[source].Name
		stripes := g.dir.stripesOf(name)
		if stripes == 0 {
			continue
		}
		delete(g.unrouted, source)
		of := make([][]int, stripes)
		for _, i := range indices {
			k := g.payload.plan.Assignments[i].Ordinal.Stripe(uint64(stripes))
			of[k] = append(of[k], i)
		}
		for k, indices := range of {
			if len(indices) > 0 {
				p := g.payload.newPortion(stripeKey{name, uint32(k)}, indices)
				g.portions, g.ready, g.left = append(g.portions, p), append(g.ready, p), g.left+1
			}
		}
	}
}

// handle handles a message of a call.
func (g *gathering) handle(h callEvent) error {
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
	if c.purpose == retrieve.Ask {
		if !c.isAnswered {
			c.isAnswered = true
			g.dir.noteTime(c.to.Address, now.Sub(c.began))
		}
		g.expect(c, now)
	}
	if err := c.take(g.payload.plan, r, g.file); err != nil {
		return fmt.Errorf("payload of step %d from %s: %w", step, c.to.Name, err)
	}
	g.fail.Hit("sidecar/reply/after")
	for _, f := range r.Failed {
		if uint64(f.Part) >= uint64(len(c.parts)) {
			return millrace.Errorf(millrace.ErrMismatch, "payload of step %d from %s: part %d of %d", step, c.to.Name,
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
	g.pool.Forgotten(c.to.Address, c.req.Gone)
	return g.handle(callEvent{call: c, err: io.EOF})
}

// file hands row k of a part to its portion.
func (g *gathering) file(x *part, k int, row row) error {
	if x.over {
		return nil // another loader is asked, or the row is not needed
	}
	if !x.hasRows && !x.call.purpose.IsHedge() {
		x.hasRows = true
		g.dir.noteReply(x.of.key, x.loader, g.payload.plan.Step)
	}
	g.came = row
	return g.on(x.of, retrieve.Event{Kind: retrieve.Came, Request: x.number, Row: x.rows[k]})
}

// ended hands the end of a part with err to its portion; nil: the part is complete.
func (g *gathering) ended(x *part, err error) error {
	if x.over {
		return nil
	}
	e := retrieve.Event{Kind: g.kindOf(x, err), Request: x.number, Now: g.clock.Now(), Why: err}
	var bad *wire.BadSamples
	if errors.As(err, &bad) {
		e.Documents = x.note(bad.Samples)
	}
	if err := g.hide(x.of); err != nil {
		return err
	}
	return g.on(x.of, e)
}

// suspect follows the watcher's verdict on the loader of a call. Portions with a standby ask it. The others wait on.
func (g *gathering) suspect(c *call) error {
	verdict := &judgedDead{g.watch.Judged(c.watched)}
	g.dir.name(partsOf(c.parts))
	for _, x := range c.parts {
		e := retrieve.Event{Kind: retrieve.Silent, Request: x.number, Using: x.of.using, Spare: x.of.spare,
			Now: g.clock.Now(), Why: verdict}
		if err := g.on(x.of, e); err != nil {
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

// redirect follows a change of the directory.
func (g *gathering) redirect() error {
	g.dir.name(g.portions)
	now := g.clock.Now()
	for _, p := range g.portions {
		e := retrieve.Event{Kind: retrieve.Moved, Using: p.using, Spare: p.spare, Now: now}
		if err := g.on(p, e); err != nil {
			return err
		}
	}
	return nil
}

// unmask continues with the portions whose rows are masked now.
func (g *gathering) unmask() error {
	g.masks.Lock()
	g.masked = g.masks.changed
	g.masks.Unlock()
	for _, p := range g.portions {
		if p.State() == retrieve.Masking {
			if err := g.hide(p); err != nil {
				return err
			}
		}
	}
	if g.masking == 0 {
		g.masked = nil
	}
	return nil
}

// hide marks the masked ones of a portion's missing rows.
func (g *gathering) hide(p *portion) error {
	var hidden []int
	g.masks.Lock()
	if len(g.masks.masked) > 0 {
		for k, i := range p.indices {
			if p.IsMissing(k) && g.masks.hides(p.key.source, &g.payload.plan.Assignments[i]) {
				hidden = append(hidden, k)
			}
		}
	}
	g.masks.Unlock()
	if hidden == nil {
		return nil
	}
	return g.on(p, retrieve.Event{Kind: retrieve.Masked, Rows: hidden})
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
			if p.State() == retrieve.Resting {
				earliest(p.Retry())
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
			if err := g.askStandbys(c); err != nil {
				return err
			}
		}
	}
	if g.resting == 0 {
		return nil
	}
	for _, p := range g.portions {
		if p.State() == retrieve.Resting {
			if err := g.on(p, retrieve.Event{Kind: retrieve.Woke, Now: now}); err != nil {
				return err
			}
		}
	}
	return nil
}
