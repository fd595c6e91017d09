package feed

import (
	"context"

	"millrace/sources"
	"millrace/sources/feed/decode"
	"millrace/sources/filter"
	"millrace/sources/order"
)

// maker makes spans: it finds their records, reads them and enters their tokens. The feed's mutex guards it.
type maker struct {
	src      *sources.Source
	stripe   order.Stripe
	parallel int // decoders of the process
	memory   *memory
	sizes    *sizes
	due      *signals
	ready    []action // of makings that were begun
}

// takeReady removes and returns the oldest ready action, or nil.
func (k *maker) takeReady() action {
	if len(k.ready) == 0 {
		return nil
	}
	act := k.ready[0]
	k.ready[0] = nil
	k.ready = k.ready[1:]
	return act
}

// lookUp finds the records of a span, and their lengths if they are known.
func (k *maker) lookUp(p *span) action {
	p.phase = gathering
	return &lookUp{maker: k, span: p}
}

// begin makes a span from its block's text or, in global order, record by record.
func (k *maker) begin(p *span, keep bool) action {
	p.phase, p.keep, p.left, p.parts, p.fields = making, keep, 1, make([]decode.Tokens, 1), nil
	if p.block != nil {
		return &makePart{maker: k, span: p, text: p.block.text}
	}
	return &split{maker: k, span: p}
}

// endPart adds a finished part to its span.
func (k *maker) endPart(p *span, part uint32, out decode.Outcome) {
	if p.keep {
		p.parts[part] = out.Tokens
		p.fields = decode.Merge(p.fields, out.Fields)
	}
	if !p.known { // decoders read the rejects of a known span, which has no new ones
		p.rejects = decode.Merge(p.rejects, out.Rejects)
	}
	p.faults = decode.Merge(p.faults, out.Faults)
	k.due.short = true
	if p.left--; p.left > 0 {
		return
	}
	k.endSpan(p)
}

// endSpan ends a making whose parts are all finished.
func (k *maker) endSpan(p *span) {
	p.phase = gathered
	if !p.known {
		p.known = true
		for i := range p.slots {
			if !p.isRefused(uint32(i)) {
				p.tokens += int64(p.slots[i].Tokens(k.src.PieceTokens()))
			}
		}
		k.sizes.learn(p)
	}
	if p.keep {
		k.memory.hold(p)
	}
	if p.gone && p.held {
		k.memory.drop(p)
	}
	if p.block != nil {
		k.memory.dropIdleText(p.block)
	}
	k.due.idle, k.due.news = true, true
}

// lookUp is the action of maker.lookUp.
type lookUp struct {
	*maker
	span    *span
	slots   []decode.Slot
	refused []uint32
	patches []uint32
	tokens  int64 // to be kept, if known
	known   bool
}

func (a *lookUp) work(ctx context.Context, _ *decode.Decoder) error {
	p := a.span
	a.slots = make([]decode.Slot, p.hi-p.lo)
	if a.src.Filters() != nil {
		a.refused = make([]uint32, len(a.slots))
	}
	if p.block != nil {
		records := p.block.order(a.src)
		for i := range a.slots {
			a.slots[i] = records.slot(a.stripe.Ordinal(p.lo + uint64(i)))
		}
	} else {
		records := a.src.Global().Lookup()
		for i := range a.slots {
			_, at := records.At(a.stripe.Ordinal(p.lo + uint64(i)))
			a.slots[i] = decode.Slot{Shard: at.Shard, Record: at.Record, Start: at.Offset}
		}
	}
	return a.readLengths(ctx)
}

// readLengths fills in lengths from the length stores, and the answers of filters. It sets known if all of them are
// there.
func (a *lookUp) readLengths(ctx context.Context) (err error) {
	view := a.src.Lengths()
	defer view.Close()
	var lengths sources.KnownLengths
	for i := range a.slots {
		s := &a.slots[i]
		if i == 0 || s.Shard != a.slots[i-1].Shard {
			if lengths, err = view.Of(ctx, s.Shard); err != nil {
				return err
			}
		}
		n, ok := lengths.Tokens(s.Record)
		if !ok {
			return nil
		}
		s.Length = n
		if lengths.Patches != nil {
			if a.patches == nil {
				a.patches = make([]uint32, len(a.slots))
			}
			a.patches[i] = lengths.Patches(s.Record)
		}
		if a.refused != nil {
			if a.refused[i], ok = lengths.Refused(s.Record, n); !ok {
				return nil
			}
			if a.refused[i]&filter.Own != 0 {
				continue
			}
		}
		a.tokens += int64(s.Tokens(a.src.PieceTokens()))
	}
	a.known = true
	return nil
}

func (a *lookUp) settle() (action, error) {
	p := a.span
	p.slots, p.refused, p.phase, p.known = a.slots, a.refused, gathered, a.known
	if a.known {
		p.patches, p.tokens = a.patches, a.tokens
		a.sizes.learn(p)
	}
	a.due.idle, a.due.news = true, true
	return nil, nil
}

// split sorts a span's records by their place in the files and cuts them into parts, which decoders read side by side.
type split struct {
	*maker
	span    *span
	entries []decode.Entry
}

func (a *split) work(context.Context, *decode.Decoder) error {
	a.entries = decode.InFileOrder(a.span.slots)
	return nil
}

func (a *split) settle() (action, error) {
	p, n := a.span, len(a.entries)
	parts := int(min(a.maker.sizes.spanBytes(p)/partBytes+1, int64(4*a.parallel), int64(n)))
	p.left, p.parts = parts, make([]decode.Tokens, parts)
	for i := 1; i < parts; i++ {
		a.ready = append(a.ready,
			&makePart{maker: a.maker, span: p, part: uint32(i), entries: a.entries[i*n/parts : (i+1)*n/parts]})
	}
	a.due.idle = true
	return &makePart{maker: a.maker, span: p, entries: a.entries[:n/parts]}, nil
}

// makePart makes one part of a span, from a text if there is one, otherwise from entries.
type makePart struct {
	*maker
	span    *span
	part    uint32 // its number
	text    *decode.Text
	entries []decode.Entry
	out     decode.Outcome
}

func (a *makePart) work(ctx context.Context, d *decode.Decoder) (err error) {
	d.Begin(a.src, a.span.part(a.part))
	if a.text != nil {
		err = d.MakeText(ctx, a.text)
	} else {
		err = d.ReadEntries(ctx, a.entries)
	}
	if err == nil {
		a.out = d.Finish()
	}
	return err
}

func (a *makePart) settle() (action, error) {
	a.endPart(a.span, a.part, a.out)
	return nil, nil
}
