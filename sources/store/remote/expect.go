package remote

import (
	"slices"
	"sort"

	"millrace/sources"
	"millrace/sources/store/cache"
)

// MostGap is the most bytes between two expected ranges that one request covers.
const MostGap = 128 << 10

// Bounds of one expectation.
const (
	expectFlying = 32      // requests in flight
	expectBytes  = 8 << 20 // in flight or not read yet
)

// expectation is the ranges that one reader reads next. Neighbours are one slot, so that one request fetches them.
type expectation struct {
	slots  []slot // ascending; they do not overlap
	done   int    // the slots before it were read
	next   int    // the first slot that was not asked for
	flying int    // slots in flight
	held   int64  // bytes of slots that have pages
	isOver bool
}

// slot is a part of an expectation, of at most pageBytes.
type slot struct {
	start, end int64
	page       *page // nil: not asked for, not kept in memory any more, or in the cache
}

// newExpectation divides ranges into slots, in units of grain. Ranges that do not ascend are left out.
func newExpectation(ranges []sources.Range, grain, size int64) *expectation {
	p, last, before := &expectation{}, slot{end: -MostGap - 1}, int64(0)
	for _, r := range ranges {
		start, end := max(r.Start/grain*grain, 0), min((r.End+grain-1)/grain*grain, size)
		if end <= last.end || r.Start >= r.End || r.Start < before {
			continue
		}
		before = r.Start
		if start <= last.end || start-last.end <= MostGap && end-last.start <= pageBytes {
			start = last.end
		}
		for at := start; at < end; {
			if n := len(p.slots); n > 0 && at == last.end && last.end-last.start < pageBytes {
				last.end = min(last.start+pageBytes, end)
				p.slots[n-1] = last
			} else {
				last = slot{start: at, end: min(at+pageBytes, end)}
				p.slots = append(p.slots, last)
			}
			at = last.end
		}
	}
	return p
}

// Expect implements sources.Expecter. Requests for the first ranges begin at once, further ones when earlier ranges
// have been read.
func (f *file) Expect(list func() []sources.Range) (done func()) {
	grain := int64(1)
	if f.host.cache != nil {
		grain = cache.BlockBytes
	}
	p := newExpectation(list(), grain, f.of.size)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expectations = append(f.expectations, p)
	f.advance(p)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.endExpectation(p)
		f.expectations = slices.DeleteFunc(f.expectations, func(x *expectation) bool { return x == p })
	}
}

// endExpectation gives up all that was fetched and not read. The lock is held.
func (f *file) endExpectation(p *expectation) {
	p.isOver = true
	for i := range p.slots[:p.next] {
		f.dropSlot(p, i)
	}
}

// dropSlot gives up a slot without a reader. The lock is held.
func (f *file) dropSlot(p *expectation, i int) {
	if pg := p.slots[i].page; pg != nil {
		pg.cancel()
		f.takeSlot(p, i)
	}
}

// takeSlot takes the page of a slot, whose reader keeps it. The lock is held.
func (f *file) takeSlot(p *expectation, i int) {
	if s := &p.slots[i]; s.page != nil {
		s.page = nil
		p.held -= s.end - s.start
		f.host.room.give(s.end - s.start)
	}
}

// advance asks for the next slots of an expectation, as far as there is memory. The lock is held.
func (f *file) advance(p *expectation) {
	for ; !p.isOver && p.next < len(p.slots) && p.flying < expectFlying && p.held < expectBytes; p.next++ {
		s := &p.slots[p.next]
		if f.host.cache != nil && f.host.cache.Has(f.key, s.start, s.end-s.start) {
			continue
		}
		if f.ctx.Err() != nil || !f.host.room.take(s.end-s.start) {
			return
		}
		p.flying, p.held = p.flying+1, p.held+s.end-s.start
		s.page = f.begin(s.start, s.end-s.start, func(error) {
			p.flying--
			f.advance(p)
		})
	}
}

// expected fills the beginning of p with bytes that a reader has announced, and returns their number.
func (f *file) expected(p []byte, off int64) (n int, err error) {
	for n < len(p) {
		at := off + int64(n)
		s, ok := f.slotOf(at, off+int64(len(p)))
		if !ok {
			return n, nil
		}
		part := p[n:min(int64(len(p)), s.end-off)]
		// a failed slot is not used: the range is read by itself
		if s.page == nil || s.page.copy(f.ctx, part, at-s.start) != nil {
			if err := f.load(f.ctx, part, at); err != nil {
				return n, err
			}
		}
		n += len(part)
	}
	return n, nil
}

// slotOf returns the slot with byte at, of which a reader takes the bytes up to end. It drops slots that were passed,
// and asks for further ones.
func (f *file) slotOf(at, end int64) (found slot, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.expectations {
		i := sort.Search(len(p.slots), func(i int) bool { return p.slots[i].end > at })
		if i == len(p.slots) || p.slots[i].start > at {
			continue
		}
		found = p.slots[i]
		for p.next <= i { // it is read by itself
			p.next++
		}
		for ; p.done < i; p.done++ {
			f.dropSlot(p, p.done)
		}
		if end >= found.end && p.done == i {
			f.takeSlot(p, i)
			p.done++
		}
		f.advance(p)
		return found, true
	}
	return slot{}, false
}
