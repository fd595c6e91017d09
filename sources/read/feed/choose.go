package feed

import (
	"context"

	"millrace"
	"millrace/sources"
	"millrace/sources/read/feed/decode"
	"millrace/sources/read/feed/pool"
	"millrace/sources/read/order"
)

// The aims of read-ahead, in bytes of tokens. They do not change the delivered content.
const (
	firstWindow = 256 << 10 // the first span in global order; each further span is four times the one before
	leastAhead  = 4 << 20   // least read-ahead beyond the wanted positions; at most a quarter of the budget's share
)

// chooser picks the next action for the decoders of a feed. It owns the state of the read-ahead. The feed's mutex
// guards it. Its parts point to each other, so it is not copied.
type chooser struct {
	src    *sources.Source
	cursor cursor
	queue  queue
	sizes  sizes
	memory memory
	maker  maker
	blocks *blockReader // nil in global order
	due    signals

	window int64 // bytes of tokens in the next span, in global order
	lazy   bool  // make no tokens for spans of known lengths before the first fetch
	placed bool  // make none: the last requests were for tokens that another process reads in place
}

// newChooser returns the read-ahead of a stripe for the decoders of a pool, at the start of the stream.
func newChooser(src *sources.Source, stripe order.Stripe, p *pool.Pool) *chooser {
	c := &chooser{
		src:    src,
		cursor: cursor{stripe: stripe, end: noEnd},
		sizes:  sizes{guess: src.RecordBytes()},
		window: firstWindow,
		lazy:   true,
	}
	c.memory = memory{queue: &c.queue, store: p.Store(), large: p.Large()}
	c.maker = maker{src: src, stripe: stripe, parallel: p.Size(), memory: &c.memory, sizes: &c.sizes, due: &c.due}
	if src.Global() != nil {
		c.cursor.end = src.Global().End()
	} else {
		c.blocks = &blockReader{src: src, cursor: &c.cursor, queue: &c.queue, memory: &c.memory, sizes: &c.sizes,
			due: &c.due}
	}
	return c
}

// moveTo sets the read-ahead to an ordinal. The feed has not run yet. The seek point is not after the ordinal; global
// order ignores it.
func (c *chooser) moveTo(from millrace.Ordinal, at millrace.SeekPoint) {
	c.cursor.moveTo(from)
	if c.blocks != nil {
		c.blocks.moveTo(at)
	}
}

// release drops the spans that end at or before an ordinal.
func (c *chooser) release(below millrace.Ordinal) {
	c.cursor.release(below)
	if c.queue.popBelow(c.cursor.head, c.memory.retire) > 0 {
		c.due.short = true
	}
	if c.blocks == nil {
		c.cursor.frontier = max(c.cursor.frontier, c.cursor.head)
	}
	c.due.idle = true
}

// clear ends the read-ahead and returns its scans, which the caller closes without the mutex. No decoder may be
// running.
func (c *chooser) clear() (scans []*scan) {
	if c.blocks != nil {
		scans = c.blocks.takeScans(c.maker.ready)
	}
	c.memory.clear()
	c.queue, c.maker.ready = queue{}, nil
	return scans
}

// choose returns the next action, or nil if nothing can be done. The order is: parts of makings that were begun; tokens
// that a fetch waits for; missing ids and tokens, span by span; new spans. Once the budget refuses tokens, only the
// wanted ids and lengths follow.
func (c *chooser) choose() (action, error) {
	if act := c.maker.takeReady(); act != nil {
		return act, nil
	}
	for _, p := range c.queue.requested {
		if !p.held && !p.gone {
			if act := c.advance(p, true); act != nil {
				return act, nil
			}
		}
	}
	limit := c.aheadLimit()
	act, refused, isFull := c.chooseSpan(limit)
	if act != nil || isFull {
		return act, nil
	}
	if refused || c.lazy {
		limit = min(limit, c.cursor.required())
	}
	return c.extend(limit)
}

// chooseSpan returns an action for the first span that needs one. refused: the budget had no room for a span's tokens.
// isFull: the spans reach the limit.
func (c *chooser) chooseSpan(limit uint64) (act action, refused, isFull bool) {
	for i := c.queue.firstUnheld(); i < len(c.queue.spans); i++ {
		if refused {
			i = max(i, c.queue.firstUnknown()) // the budget refuses all spans with known lengths
			if i == len(c.queue.spans) {
				break
			}
		}
		p := c.queue.spans[i]
		if p.lo >= limit || refused && p.lo >= c.cursor.want {
			return nil, refused, true
		}
		if p.held || p.known && (c.lazy || c.placed) {
			continue
		}
		if !refused || p.phase == fresh {
			if act := c.advance(p, i == 0 && p.block != nil); act != nil {
				return act, refused, false
			}
			refused = refused || p.phase == gathered && !(p.block != nil && c.blocks.isReading(p))
		}
		if refused && p.phase == gathered && !p.known && p.lo < c.cursor.want {
			if act := c.measure(p); act != nil {
				return act, refused, false
			}
		}
	}
	return nil, refused, false
}

// aheadLimit returns the position up to which spans are made if the budget allows.
func (c *chooser) aheadLimit() uint64 {
	least := min(leastAhead*int64(max(c.maker.parallel/4, 1)), c.memory.quota.Share()/4)
	return c.cursor.ahead(min(uint64(least/c.sizes.recordBytes()), maxSpan))
}

// advance returns the action that takes a span to its next phase. It returns nil if the span has to wait for the budget
// or for another decoder.
func (c *chooser) advance(p *span, must bool) action {
	switch p.phase {
	case fresh:
		return c.maker.lookUp(p)
	case gathered:
		if p.block != nil && !p.block.has(p) {
			return c.blocks.readText(p, must, false)
		}
		c.cut(p)
		need := c.sizes.spanBytes(p)
		if !c.memory.room(need, p, must) {
			return nil
		}
		p.charge = need
		return c.makeSpan(p, true)
	}
	return nil
}

// measure reads a span for its lengths alone.
func (c *chooser) measure(p *span) action {
	if p.block != nil && !p.block.has(p) {
		return c.blocks.readText(p, true, true)
	}
	c.cut(p)
	return c.makeSpan(p, false)
}

// cut shortens a span that is about to be made, so that decoders soon turn to other feeds. Fetches that wait for the
// span look again which one they wait for.
func (c *chooser) cut(p *span) {
	if c.src.HoldsTokens() || p.rejects != nil || p.faults != nil || p.runs != nil {
		return
	}
	n := c.maker.pace.most(c.sizes.spanBytes(p) / int64(p.hi-p.lo))
	if n < p.hi-p.lo {
		c.queue.insert(p, p.cut(n, c.src.PieceTokens()))
		c.due.news = true
	}
}

// makeSpan starts the making of a span. In a block order, the text of the next block is read meanwhile if the budget
// has room to spare.
func (c *chooser) makeSpan(p *span, keep bool) action {
	act := c.maker.begin(p, keep)
	if b := p.block; b != nil {
		next := c.queue.spanAt(b.spans[len(b.spans)-1].hi)
		if next != nil && !next.held && next.lo < c.aheadLimit() {
			if early := c.blocks.readEarly(next.block, leastAhead); early != nil {
				c.maker.ready = append(c.maker.ready, early)
			}
		}
	}
	return act
}

// extend adds spans until they reach a position.
func (c *chooser) extend(limit uint64) (action, error) {
	if c.blocks != nil {
		act, added, err := c.blocks.addUntil(limit)
		if act == nil && added && err == nil {
			return c.choose()
		}
		return act, err
	}
	end := c.cursor.stripe.Position(c.cursor.end)
	lo := c.cursor.frontier
	if lo >= min(limit, end) {
		return nil, nil
	}
	quarter := c.memory.quota.Share() / 4
	n := uint64(min(max(min(c.window, quarter)/c.sizes.recordBytes(), millrace.StripeRun), maxSpan))
	if required := c.cursor.required(); c.lazy && lo < required {
		n = min(n, required-lo) // a run's first step waits for no other lengths
	} else {
		c.window = min(4*c.window, max(quarter, firstWindow))
	}
	p := &span{lo: lo, hi: min(lo+n, end)}
	c.cursor.frontier = p.hi
	c.queue.push(p)
	return c.maker.lookUp(p), nil
}

// urgency returns how urgent the feed's work is, in case there is any.
func (c *chooser) urgency() pool.Urgency {
	for _, p := range c.queue.requested {
		if !p.held && !p.gone {
			return pool.Urgency{Class: pool.Requested}
		}
	}
	at := &c.cursor
	known := at.frontier
	if i := c.queue.firstUnknown(); i < len(c.queue.spans) {
		known = c.queue.spans[i].lo
	}
	required := min(at.required(), at.stripe.Position(at.end))
	if known < required {
		return pool.Urgency{Class: pool.Wanted, Lag: lag(at.head, known, required)}
	}
	if len(c.maker.ready) > 0 {
		return pool.Urgency{Class: pool.Begun}
	}
	held := at.frontier
	if i := c.queue.firstUnheld(); i < len(c.queue.spans) && !c.placed {
		held = c.queue.spans[i].lo
	}
	return pool.Urgency{Class: pool.Ahead, Lag: lag(at.head, held, required)}
}

// lag returns which part of the positions from head to want is still missing, if those below have are there.
func lag(head, have, want uint64) uint32 {
	if have >= want {
		return 0
	}
	return uint32(min((want-have)/max((want-min(head, have))/pool.MaxLag, 1), pool.MaxLag))
}

// action is one piece of a feed's work.
type action interface {
	// work does the piece without the feed's mutex.
	work(ctx context.Context, d *decode.Decoder) error
	// settle enters the result with the feed's mutex held. The same decoder does the returned action next, if any.
	settle() (next action, err error)
}

// signals collects the wake-ups that a change of state causes. The feed gives them when it unlocks its mutex.
type signals struct {
	idle  bool // a decoder may find an action
	news  bool // Next or Fetch may continue
	short bool // bytes were given back: feeds of the same budget may continue
}
