package sources

import (
	"context"
	"math"
	"slices"
)

// What a feed aims at. None of it changes what is delivered.
const (
	packBytes   = 256 << 10 // bytes of one part of a making: tokens, or about as much text
	firstWindow = 256 << 10 // bytes of the first pack in global order; each further pack is four times the one before
	leastAhead  = 4 << 20   // bytes read ahead of what is wanted, at least, as far as that is a quarter of the budget's share
	maxPack     = 64 << 10  // records of a pack
)

// choose returns what is to be done next, nil if nothing can be; the mutex is held. In this order: parts of makings begun, tokens
// that a Fetch waits for, then pack by pack in ordinal order what is missing: ids, tokens as far as the budget goes, and behind
// that lengths, as far as they are wanted.
func (f *Feed) choose() (move, error) {
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
	for i := f.unheld(); i < len(f.packs); i++ {
		if refused {
			i = max(i, f.unknown()) // the budget refuses what is known already
			if i == len(f.packs) {
				break
			}
		}
		p := f.packs[i]
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

// unasked tells that no token was asked of a feed that reads at random what is asked first. Until then tokens whose lengths are known are
// not made: of a thousand sources few are drawn in a step, and those must not wait for the others.
func (f *Feed) unasked() bool { return f.src.global != nil && f.aside != nil && !f.asked }

// ahead returns the seat up to which packs are made where the budget allows: as far again beyond what is wanted as what is
// wanted lies beyond the head.
func (f *Feed) ahead() uint64 {
	want := max(f.want, f.demanded, f.head)
	least := min(uint64(min(leastAhead*int64(max(f.cfg.Parallel/4, 1)), f.account.share()/4)/f.sizes.record()), maxPack)
	more := max(want-f.head, least, stripeRun)
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

// learn counts a pack whose lengths became known.
func (s *sizes) learn(p *pack) {
	s.records += int64(len(p.slots))
	s.tokens += p.tokens
}

// advance takes a pack one stage further towards being held. nil where that has to wait: for the budget, for another maker.
func (f *Feed) advance(p *pack, must bool) move {
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
			f.account.force(-need)
			return nil
		}
		p.charge = need
		return f.begin(p, true)
	}
	return nil
}

// measure reads a pack for its lengths alone.
func (f *Feed) measure(p *pack) move {
	if p.block != nil && p.block.text == nil {
		return f.readText(p.block, p, true, true)
	}
	if !f.turn(p) {
		return nil
	}
	return f.begin(p, false)
}

// turn tells whether a pack may be made now: what a Fetch waits for always.
func (f *Feed) turn(p *pack) bool {
	if p.demand == 0 {
		p.counted = f.account.begin()
		return p.counted
	}
	return true
}

// begin starts the making of a pack.
func (f *Feed) begin(p *pack, keep bool) move {
	p.stage, p.keep, p.left, p.parts = making, keep, 1, make([][]uint32, 1)
	if p.block != nil {
		text := p.block.text
		if act := f.readNextText(p.block); act != nil {
			f.ready = append(f.ready, act)
		}
		return func(_ context.Context, m *maker) error { return m.makeFromText(p, text) }
	}
	return func(ctx context.Context, m *maker) error { return m.split(ctx, p) }
}

// tokenBytes estimates what a pack's tokens will take.
func (f *Feed) tokenBytes(p *pack) int64 {
	if p.known {
		return 4 * p.tokens
	}
	n := int64(p.hi - p.lo)
	if p.block != nil {
		return n * int64(p.block.size.Raw/p.block.size.Records)
	}
	return n * f.sizes.record()
}

// room charges n bytes for a pack. Where the budget refuses, what is needed later goes first; the head, and what a Fetch waits
// for, have room in any case.
func (f *Feed) room(n int64, p *pack, must bool) bool {
	for !f.account.take(n) {
		if f.dropText(p) || f.evict(p, must) {
			continue
		}
		if !must {
			return false
		}
		f.account.force(n)
		return true
	}
	return true
}

// evict drops the tokens of the newest pack behind p, or, where p must be had, of any but the first.
func (f *Feed) evict(p *pack, must bool) bool {
	for _, q := range slices.Backward(f.packs[:f.lastHeld()]) {
		if q.lo <= p.lo && !must || q == f.packs[0] {
			return false
		}
		if q != p && q.held && q.pins == 0 && q.demand == 0 {
			f.drop(q)
			return true
		}
	}
	return false
}

// extend adds packs until they reach a seat.
func (f *Feed) extend(limit uint64) (move, error) {
	if f.src.global == nil {
		return f.extendBlocks(limit)
	}
	limit = min(limit, f.stripe.seat(f.end))
	if f.frontier >= limit {
		return nil, nil
	}
	quarter := f.account.share() / 4
	n := uint64(min(max(min(f.sizes.window, quarter)/f.sizes.record(), stripeRun), maxPack))
	p := &pack{lo: f.frontier, hi: min(f.frontier+n, f.stripe.seat(f.end))}
	f.sizes.window = min(4*f.sizes.window, max(quarter, firstWindow))
	f.frontier = p.hi
	f.packs = append(f.packs, p)
	return f.gather(p), nil
}
