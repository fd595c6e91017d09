package feed

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"millrace"
)

// Emit gets the answer to the request of index i. tokens holds Length tokens, and one more if the document continues;
// it is valid until Emit returns. fields has the passed-through fields of the document's record
// (sources.Judge.Passed).
type Emit func(i int, tokens []uint32, fields string) error

// Fetch passes the requested tokens to emit, in any order, one call at a time. Tokens that are not held are made again.
//
// Documents that cannot be served are reported after all others, as joined *SampleError. An error of emit ends the
// fetch.
func (f *Feed) Fetch(ctx context.Context, reqs []Request, emit Emit) error {
	byOrdinal, err := f.sorted(reqs)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, f.nudge)()
	shelf, err := f.shelfFor(ctx, reqs)
	if err != nil {
		return err
	}
	if shelf != nil {
		return f.fetchRandom(ctx, shelf, reqs, byOrdinal, emit)
	}
	var bad error
	var scratch []uint32
	for len(byOrdinal) > 0 {
		p, err := f.pin(ctx, reqs[byOrdinal[0]].Ordinal)
		if err != nil {
			return err
		}
		n := 0
		for err == nil && n < len(byOrdinal) && f.stripe.Position(reqs[byOrdinal[n]].Ordinal) < p.hi {
			i := byOrdinal[n]
			bad, err = separate(bad, f.emitFrom(p, i, reqs[i], &scratch, emit))
			n++
		}
		f.unpin(p)
		if err != nil {
			return err
		}
		byOrdinal = byOrdinal[n:]
	}
	return bad
}

// shelfFor returns the shelf if requests are read at random, or nil if spans serve them. A feed that never was a
// standby reads at random only within known lengths. For requests beyond them, its spans first find the lengths or the
// error.
func (f *Feed) shelfFor(ctx context.Context, reqs []Request) (*shelf, error) {
	f.mu.Lock()
	defer f.unlock()
	defer func() { f.ahead.lazy, f.ahead.placed = false, false }()
	for _, r := range reqs {
		if f.shelf == nil || f.cfg.Standby {
			break
		}
		if known, err := f.isKnown(ctx, r); err != nil || !known {
			return nil, err
		}
	}
	return f.shelf, nil
}

// isKnown waits until the lengths around a request were looked up, and reports whether it is within its document; the
// mutex is held.
func (f *Feed) isKnown(ctx context.Context, r Request) (bool, error) {
	position := f.stripe.Position(r.Ordinal)
	for {
		if err := f.ahead.cursor.check(f.src.Name(), r.Ordinal, position); err != nil {
			return false, err
		}
		if p := f.ahead.queue.spanAt(position); p != nil && p.phase > gathering {
			return p.known && uint64(r.Offset)+uint64(r.Length) <= uint64(p.slots[position-p.lo].Length), nil
		}
		f.ahead.cursor.require(position)
		f.ahead.due.idle = true
		if err := f.wait(ctx); err != nil {
			return false, err
		}
	}
}

// fetchRandom serves from spans the tokens that they hold, and reads the rest at random. If spans hold most of the
// documents, and the budget has room for more, they serve everything from the next fetch on.
func (f *Feed) fetchRandom(ctx context.Context, s *shelf, reqs []Request, byOrdinal []int, emit Emit) error {
	var missing []wanted
	var scratch []uint32
	var bad error
	held := 0
	for _, w := range byDocument(reqs, byOrdinal) {
		p, err := f.tryPin(w.ordinal)
		if err != nil {
			return err
		}
		if p == nil {
			missing = append(missing, w)
			continue
		}
		held++
		for _, i := range w.reqs {
			if bad, err = separate(bad, f.emitFrom(p, i, reqs[i], &scratch, emit)); err != nil {
				break
			}
		}
		f.unpin(p)
		if err != nil {
			return err
		}
	}
	if held > len(missing) {
		f.dropShelf()
	}
	f.cfg.Pool.Hurry()
	err := f.readRandom(ctx, s, missing, serving(reqs, emit))
	f.cfg.Pool.Calm()
	bad, err = separate(bad, err)
	return errors.Join(bad, err)
}

// dropShelf lets spans serve all requests, unless the budget is too small for the spans of all feeds: then single
// documents are read at random.
func (f *Feed) dropShelf() {
	f.mu.Lock()
	defer f.unlock()
	quota := f.ahead.memory.quota
	if f.shelf == nil || quota == nil || quota.Share() < millrace.StripeRun*f.ahead.sizes.recordBytes() {
		return
	}
	f.shelf.clear()
	f.shelf = nil
}

// FetchAgain is Fetch, but reads every document from the file again, also if its tokens are held.
func (f *Feed) FetchAgain(ctx context.Context, reqs []Request, emit Emit) error {
	byOrdinal, err := f.sorted(reqs)
	if err != nil {
		return err
	}
	all := byDocument(reqs, byOrdinal)
	if err := f.checkAll(all); err != nil {
		return err
	}
	return f.readRandom(ctx, nil, all, serving(reqs, emit))
}

// checkAll returns the error of the first document that cannot be fetched.
func (f *Feed) checkAll(documents []wanted) error {
	f.mu.Lock()
	defer f.unlock()
	for _, w := range documents {
		if err := f.ahead.cursor.check(f.src.Name(), w.ordinal, f.stripe.Position(w.ordinal)); err != nil {
			return err
		}
	}
	return nil
}

// sorted returns the indexes of requests in ordinal order.
func (f *Feed) sorted(reqs []Request) ([]int, error) {
	byOrdinal := make([]int, len(reqs))
	for i := range byOrdinal {
		byOrdinal[i] = i
		if !f.stripe.Has(reqs[i].Ordinal) {
			return nil, millrace.Errorf(millrace.ErrInvalid, "fetch %s ordinal %d: it is not of stripe %d/%d",
				f.src.Name(), reqs[i].Ordinal, f.stripe.Index, f.stripe.Of)
		}
	}
	slices.SortFunc(byOrdinal, func(a, b int) int {
		if reqs[a].Ordinal != reqs[b].Ordinal {
			return cmp.Compare(reqs[a].Ordinal, reqs[b].Ordinal)
		}
		return a - b
	})
	return byOrdinal, nil
}

// emitFrom serves one request from a span that is pinned. It unpacks the tokens into scratch.
func (f *Feed) emitFrom(p *span, i int, r Request, scratch *[]uint32, emit Emit) error {
	at := uint32(f.stripe.Position(r.Ordinal) - p.lo)
	if q, ok := p.faults[at]; ok {
		return &SampleError{Ordinal: r.Ordinal, Quarantine: q}
	}
	s := &p.slots[at]
	piece := f.src.PieceTokens()
	until := uint64(r.Offset) + uint64(r.Length)
	if q, ok := p.rejects[at]; ok && until > 0 { // another reading offered it with a length
		return &SampleError{Ordinal: r.Ordinal, Quarantine: q}
	}
	if p.isRefused(at) {
		return millrace.Errorf(millrace.ErrMismatch,
			"fetch %s %s: the source's filter refuses it, although a plan holds it",
			f.src.Name(), f.src.SampleName(s.Shard, s.Record))
	}
	if r.Offset < s.Start || until > uint64(s.Start)+uint64(s.Tokens(piece)) {
		return millrace.Errorf(millrace.ErrMismatch, "fetch %s %s tokens %d to %d: ordinal %d has tokens %d to %d",
			f.src.Name(), f.src.SampleName(s.Shard, s.Record), r.Offset, until, r.Ordinal, s.Start,
			s.Start+s.Tokens(piece))
	}
	if s.Tokens(piece) == 0 {
		return emit(i, nil, p.fields[at])
	}
	from, to := within(int(s.Held(piece)), s.Start, r)
	*scratch = p.parts[s.Part].Append((*scratch)[:0], int(s.Off)+from, int(s.Off)+to)
	return emit(i, *scratch, p.fields[at])
}

// within returns the place of the requested tokens among those that are held of an ordinal, which begins at an offset
// of its document. One more token is requested if the document continues.
func within(held int, start uint32, r Request) (from, to int) {
	from = int(r.Offset - start)
	return from, min(from+int(r.Length)+1, held)
}

// pin waits until the tokens around an ordinal are held, and keeps them from being dropped.
func (f *Feed) pin(ctx context.Context, n millrace.Ordinal) (*span, error) {
	hurried := false
	defer func() {
		if hurried {
			f.cfg.Pool.Calm()
		}
	}()
	f.mu.Lock()
	defer f.unlock()
	for {
		p, err := f.pinHeld(n)
		if err != nil || p != nil && p.held {
			return p, err
		}
		if !hurried {
			hurried = true
			f.cfg.Pool.Hurry()
		}
		if p != nil {
			f.ahead.queue.request(p)
		}
		err = f.wait(ctx)
		if p != nil {
			f.ahead.queue.withdraw(p)
		}
		if err != nil {
			return nil, err
		}
	}
}

// pinHeld returns the span around an ordinal, or nil; the mutex is held. It pins the span if its tokens are held.
// Otherwise the feed reads up to the ordinal.
func (f *Feed) pinHeld(n millrace.Ordinal) (*span, error) {
	position := f.stripe.Position(n)
	if err := f.ahead.cursor.check(f.src.Name(), n, position); err != nil {
		return nil, err
	}
	p := f.ahead.queue.spanAt(position)
	if p != nil && p.held {
		p.pins++
		return p, nil
	}
	f.ahead.cursor.require(position)
	f.ahead.due.idle = true
	return p, nil
}

// tryPin is pin without waiting: it returns nil if the tokens are not held.
func (f *Feed) tryPin(n millrace.Ordinal) (*span, error) {
	f.mu.Lock()
	defer f.unlock()
	if f.err != nil {
		return nil, f.err
	}
	p, err := f.pinHeld(n)
	if err != nil || p != nil && !p.held {
		return nil, err
	}
	return p, nil
}

// unpin ends the reading that a pin began.
func (f *Feed) unpin(p *span) {
	f.mu.Lock()
	defer f.unlock()
	f.ahead.due.idle = true
	if f.ahead.memory.unpin(p) {
		f.ahead.due.short = true
	}
}
