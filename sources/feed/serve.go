package feed

import (
	"context"
	"errors"
	"slices"

	"millrace"
)

// Next blocks for the next offers of the stripe, in ordinal order. After End it returns End again.
func (f *Feed) Next(ctx context.Context) (Batch, error) {
	defer context.AfterFunc(ctx, f.nudge)()
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		b := f.offer()
		if len(b.Offers) > 0 || b.End {
			return b, nil
		}
		if err := f.wait(ctx); err != nil {
			return Batch{}, err
		}
	}
}

// offer collects what can be offered now; the mutex is held.
func (f *Feed) offer() (b Batch) {
	for f.offered < f.want && len(b.Offers) < batchOffers {
		p := f.spanAt(f.offered)
		if p == nil || !p.known {
			break
		}
		until := min(p.hi, f.want, f.offered+uint64(batchOffers-len(b.Offers)))
		b.Offers = slices.Grow(b.Offers, int(until-f.offered))
		for ; f.offered < until; f.offered++ {
			b.Offers = append(b.Offers, f.offerOf(p, f.offered))
		}
	}
	if f.end != ^millrace.Ordinal(0) && f.offered >= f.stripe.Position(f.end) {
		b.End, b.EndOrdinal = true, f.end
	}
	if len(b.Offers) > 0 || b.End {
		b.SeekPoints = f.takeSeekPoints(f.stripe.Ordinal(f.offered))
	}
	return b
}

func (f *Feed) offerOf(p *span, position uint64) Offer {
	s := &p.slots[position-p.lo]
	n := f.stripe.Ordinal(position)
	o := Offer{SampleMeta: millrace.SampleMeta{
		Ordinal: n,
		Epoch:   f.epochOf(p, n),
		ID:      millrace.SampleID{Shard: s.shard, Record: s.record},
		Lengths: millrace.Lengths{Tokens: s.length},
	}}
	if p.patches != nil {
		o.Lengths.Patches = p.patches[position-p.lo]
	}
	if p.refused != nil {
		o.Refused = uint64(p.refused[position-p.lo])
	}
	if q, ok := p.rejects[uint32(position-p.lo)]; ok {
		o.Reject = q.Reason
		o.Quarantine = &q
	}
	return o
}

func (f *Feed) epochOf(p *span, n millrace.Ordinal) millrace.Epoch {
	if p.block != nil {
		return p.block.seekPoint.Epoch
	}
	return millrace.Epoch(uint64(n) / f.src.Global().Total())
}

// spanAt returns the span that holds a position, nil where there is none.
func (f *Feed) spanAt(position uint64) *span {
	i := f.spansBefore(position)
	if i == len(f.spans) || f.spans[i].lo > position {
		return nil
	}
	return f.spans[i]
}

// Fetch hands on the tokens that the requests name, in any order: i is the request's index, and tokens holds Length
// tokens and one more where the document goes on. tokens is valid until emit returns. Payload that is not held is
// made again.
//
// Documents that cannot be served are reported after all others, as joined *SampleError; errors of emit end the fetch.
func (f *Feed) Fetch(ctx context.Context, reqs []Request, emit func(i int, tokens []uint32) error) error {
	byOrdinal, err := f.sorted(reqs)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, f.nudge)()
	a, err := f.asideFor(ctx, reqs)
	if err != nil {
		return err
	}
	if a != nil {
		return f.fetchAside(ctx, a, reqs, byOrdinal, emit)
	}
	var bad error
	for len(byOrdinal) > 0 {
		p, err := f.pin(ctx, reqs[byOrdinal[0]].Ordinal)
		if err != nil {
			return err
		}
		n := 0
		for err == nil && n < len(byOrdinal) && f.stripe.Position(reqs[byOrdinal[n]].Ordinal) < p.hi {
			i := byOrdinal[n]
			err = f.emitOne(p, i, reqs[i], emit)
			var sample *SampleError
			if errors.As(err, &sample) {
				bad, err = errors.Join(bad, err), nil
			}
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

// sorted returns the indexes of requests in ordinal order.
func (f *Feed) sorted(reqs []Request) ([]int, error) {
	byOrdinal := make([]int, len(reqs))
	for i := range byOrdinal {
		byOrdinal[i] = i
		if !f.stripe.Has(reqs[i].Ordinal) {
			return nil, millrace.Errorf(millrace.ErrInvalid, "fetch %s ordinal %d: it is not of stripe %d/%d", f.src.Name(), reqs[i].Ordinal, f.stripe.Index, f.stripe.Of)
		}
	}
	slices.SortFunc(byOrdinal, func(a, b int) int {
		if reqs[a].Ordinal != reqs[b].Ordinal {
			return cmpOrdinal(reqs[a].Ordinal, reqs[b].Ordinal)
		}
		return a - b
	})
	return byOrdinal, nil
}

// FetchAgain is Fetch of requests that are read anew from the file, whatever of them is held.
func (f *Feed) FetchAgain(ctx context.Context, reqs []Request, emit func(i int, tokens []uint32) error) error {
	byOrdinal, err := f.sorted(reqs)
	if err != nil {
		return err
	}
	var wanted []want
	for _, i := range byOrdinal {
		n := reqs[i].Ordinal
		f.mu.Lock()
		err := f.servable(n, f.stripe.Position(n))
		f.mu.Unlock()
		if err != nil {
			return err
		}
		if last := len(wanted) - 1; last >= 0 && wanted[last].ordinal == n {
			wanted[last].reqs = append(wanted[last].reqs, i)
			continue
		}
		wanted = append(wanted, want{n, []int{i}})
	}
	return f.readAside(ctx, nil, wanted, serving(reqs, emit))
}

func cmpOrdinal(a, b millrace.Ordinal) int {
	if a < b {
		return -1
	}
	return 1
}

func (f *Feed) emitOne(p *span, i int, r Request, emit func(int, []uint32) error) error {
	at := uint32(f.stripe.Position(r.Ordinal) - p.lo)
	if q, ok := p.faults[at]; ok {
		return &SampleError{Ordinal: r.Ordinal, Quarantine: q}
	}
	s := &p.slots[at]
	until := uint64(r.Offset) + uint64(r.Length)
	if q, ok := p.rejects[at]; ok && until > 0 { // another reading had offered it
		return &SampleError{Ordinal: r.Ordinal, Quarantine: q}
	}
	if p.dropped(at) {
		return millrace.Errorf(millrace.ErrMismatch, "fetch %s %s: its filter refuses it", f.src.Name(), f.src.SampleName(s.shard, s.record))
	}
	if until > uint64(s.length) {
		return millrace.Errorf(millrace.ErrMismatch, "fetch %s %s tokens %d to %d: it has %d", f.src.Name(), f.src.SampleName(s.shard, s.record), r.Offset, until, s.length)
	}
	if s.length == 0 {
		return emit(i, nil)
	}
	tokens := p.parts[s.part][s.off : s.off+s.length]
	return emit(i, tokens[r.Offset:min(until+1, uint64(s.length)):len(tokens)])
}

// pin waits until the tokens around an ordinal are held and keeps them from being dropped.
func (f *Feed) pin(ctx context.Context, n millrace.Ordinal) (*span, error) {
	position := f.stripe.Position(n)
	hurried := false
	defer func() {
		if hurried {
			f.cfg.Budget.Calm()
		}
	}()
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		if err := f.servable(n, position); err != nil {
			return nil, err
		}
		p := f.spanAt(position)
		if p != nil && p.held {
			p.pins++
			return p, nil
		}
		f.demanded = max(f.demanded, position+1)
		if !hurried {
			hurried = true
			f.cfg.Budget.Hurry()
		}
		if p != nil {
			f.ask(p)
		}
		f.idle.Broadcast()
		err := f.wait(ctx)
		if p != nil {
			f.unask(p)
		}
		if err != nil {
			return nil, err
		}
	}
}

// servable tells why an ordinal cannot be asked for; the mutex is held.
func (f *Feed) servable(n millrace.Ordinal, position uint64) error {
	if position < f.head {
		return millrace.Errorf(millrace.ErrInvalid, "fetch %s ordinal %d: it was released (all below %d)", f.src.Name(), n, f.stripe.Ordinal(f.head))
	}
	if n >= f.end {
		return millrace.Errorf(millrace.ErrInvalid, "fetch %s ordinal %d: the stream ends at %d", f.src.Name(), n, f.end)
	}
	return nil
}

func (f *Feed) unpin(p *span) {
	f.mu.Lock()
	p.pins--
	gave := p.gone && p.pins == 0 && p.held && f.quota != nil
	if gave {
		f.drop(p)
	}
	quota := f.quota
	f.idle.Broadcast()
	f.mu.Unlock()
	if gave {
		quota.WakeShort()
	}
}
