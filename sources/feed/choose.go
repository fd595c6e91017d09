package feed

import (
	"context"
	"math"
	"slices"

	"millrace"
)

// What a feed aims at. None of it changes what is delivered.
const (
	partBytes   = 256 << 10 // bytes of one part of a making: tokens, or about as much text
	firstWindow = 256 << 10 // bytes of the first span in global order; each further span is four times the one before
	leastAhead  = 4 << 20   // bytes read ahead of what is wanted, at least, as far as that is a quarter of the budget's share
	maxSpan     = 64 << 10  // records of a span
)

// choose returns what is to be done next, nil if nothing can be; the mutex is held. In this order: parts of makings
// begun, tokens that a Fetch waits for, then span by span in ordinal order what is missing: ids, tokens as far as the
// budget goes, and behind that lengths, as far as they are wanted.
func (f *Feed) choose() (action, error) {
	if f.err != nil {
		return nil, f.err
	}
	if len(f.ready) > 0 {
		act := f.ready[0]
		f.ready[0] = nil
		f.ready = f.ready[1:]
		return act, nil
	}
	for _, p := range f.edges.asking {
		if !p.held && !p.gone {
			if act := f.advance(p, true); act != nil {
				return act, nil
			}
		}
	}
	limit := f.ahead()
	refused := false
	for i := f.unheld(); i < len(f.spans); i++ {
		if refused {
			i = max(i, f.unknown()) // the budget refuses what is known already
			if i == len(f.spans) {
				break
			}
		}
		p := f.spans[i]
		if p.lo >= limit || refused && p.lo >= f.want {
			return nil, nil
		}
		if p.held || p.known && f.unasked() {
			continue
		}
		if !refused || p.stage == fresh {
			if act := f.advance(p, i == 0); act != nil {
				return act, nil
			}
			refused = refused || p.stage == gathered && !f.scanning(p)
		}
		if refused && p.stage == gathered && !p.known && p.lo < f.want {
			if act := f.measure(p); act != nil {
				return act, nil
			}
		}
	}
	if wanted := max(f.want, f.demanded); refused || f.unasked() {
		limit = min(limit, wanted)
	}
	return f.extend(limit)
}

// unasked tells that no token was asked of a feed that reads at random what is asked first. Until then tokens whose
// lengths are known are not made: of a thousand sources few are drawn in a step, and those must not wait for the
// others.
func (f *Feed) unasked() bool { return f.src.Global() != nil && f.aside != nil && !f.asked }

// ahead returns the position up to which spans are made where the budget allows: as far again beyond what is wanted
// as what is wanted lies beyond the head.
func (f *Feed) ahead() uint64 {
	want := max(f.want, f.demanded, f.head)
	least := min(uint64(min(leastAhead*int64(max(f.cfg.Parallel/4, 1)), f.quota.Share()/4)/f.sizes.record()), maxSpan)
	more := max(want-f.head, least, millrace.StripeRun)
	if want > math.MaxUint64-more {
		return math.MaxUint64
	}
	return want + more
}

// record returns the bytes that a record's tokens take, on average.
func (s *sizes) record() int64 {
	if s.records < 64 {
		return s.guess
	}
	return max(4*s.tokens/s.records, 4)
}

// learn counts a span whose lengths became known.
func (s *sizes) learn(p *span) {
	s.records += int64(len(p.slots))
	s.tokens += p.tokens
}

// advance takes a span one stage further towards being held. nil where that has to wait: for the budget, for another
// decoder.
func (f *Feed) advance(p *span, must bool) action {
	switch p.stage {
	case fresh:
		return f.gather(p)
	case gathered:
		if p.block != nil && p.block.text == nil {
			return f.readText(p.block, p, must, false)
		}
		need := f.tokenBytes(p)
		if !f.room(need, p, must) {
			return nil
		}
		if !f.turn(p) {
			f.quota.Force(-need)
			return nil
		}
		p.charge = need
		return f.begin(p, true)
	}
	return nil
}

// measure reads a span for its lengths alone.
func (f *Feed) measure(p *span) action {
	if p.block != nil && p.block.text == nil {
		return f.readText(p.block, p, true, true)
	}
	if !f.turn(p) {
		return nil
	}
	return f.begin(p, false)
}

// turn tells whether a span may be made now: what a Fetch waits for always.
func (f *Feed) turn(p *span) bool {
	if p.demand == 0 {
		p.counted = f.quota.Reserve()
		return p.counted
	}
	return true
}

// begin starts the making of a span.
func (f *Feed) begin(p *span, keep bool) action {
	p.stage, p.keep, p.left, p.parts = making, keep, 1, make([][]uint32, 1)
	if p.block != nil {
		text := p.block.text
		if act := f.readNextText(p.block); act != nil {
			f.ready = append(f.ready, act)
		}
		return func(_ context.Context, m *decoder) error { return m.makeFromText(p, text) }
	}
	return func(ctx context.Context, m *decoder) error { return m.split(ctx, p) }
}

// tokenBytes estimates what a span's tokens will take.
func (f *Feed) tokenBytes(p *span) int64 {
	if p.known {
		return 4 * p.tokens
	}
	n := int64(p.hi - p.lo)
	if p.block != nil {
		return n * int64(p.block.size.Raw/p.block.size.Records)
	}
	return n * f.sizes.record()
}

// room charges n bytes for a span. Where the budget refuses, what is needed later goes first; the head, and what a
// Fetch waits for, have room in any case.
func (f *Feed) room(n int64, p *span, must bool) bool {
	for !f.quota.Take(n) {
		if f.dropText(p) || f.evict(p, must) {
			continue
		}
		if !must {
			return false
		}
		f.quota.Force(n)
		return true
	}
	return true
}

// evict drops the tokens of the newest span behind p, or, where p must be had, of any but the first.
func (f *Feed) evict(p *span, must bool) bool {
	for _, q := range slices.Backward(f.spans[:f.lastHeld()]) {
		if q.lo <= p.lo && !must || q == f.spans[0] {
			return false
		}
		if q != p && q.held && q.pins == 0 && q.demand == 0 {
			f.drop(q)
			return true
		}
	}
	return false
}

// extend adds spans until they reach a position.
func (f *Feed) extend(limit uint64) (action, error) {
	if f.src.Global() == nil {
		return f.extendBlocks(limit)
	}
	limit = min(limit, f.stripe.Position(f.end))
	if f.frontier >= limit {
		return nil, nil
	}
	quarter := f.quota.Share() / 4
	n := uint64(min(max(min(f.sizes.window, quarter)/f.sizes.record(), millrace.StripeRun), maxSpan))
	p := &span{lo: f.frontier, hi: min(f.frontier+n, f.stripe.Position(f.end))}
	f.sizes.window = min(4*f.sizes.window, max(quarter, firstWindow))
	f.frontier = p.hi
	f.spans = append(f.spans, p)
	return f.gather(p), nil
}
