package feed

import (
	"context"
	"math"
	"time"

	"millrace"
	"millrace/internal/tokenid"
	"millrace/sources"
	"millrace/sources/read/feed/decode"
	"millrace/sources/read/filter"
	"millrace/sources/read/order"
)

// maker makes spans: it finds their records, reads them and enters their tokens. The feed's mutex guards it.
type maker struct {
	src      *sources.Source
	stripe   order.Stripe
	parallel int // decoders of the process
	memory   *memory
	sizes    *sizes
	pace     pace
	due      *signals
	ready    []action // of makings that were begun
}

// pace is the time that decoders took to tokenise the newest records.
type pace struct {
	records int
	spent   time.Duration
}

// Bounds of the work that decoders do for one feed before they turn to another one.
const (
	firstRecords = 8                      // while the pace is unknown
	slowPart     = 2 * time.Second        // of partBytes: if they take longer, spans are cut
	slice        = 500 * time.Millisecond // of a span that was cut
)

// learn counts a part. Older ones count less and less.
func (p *pace) learn(out *decode.Outcome) {
	if out.Texts > 0 {
		p.records, p.spent = p.records/2+out.Texts, p.spent/2+out.Spent
	}
}

// most returns the number of records of a size that a decoder should make at once.
func (p *pace) most(recordBytes int64) uint64 {
	if p.records == 0 {
		return firstRecords
	}
	each := p.spent / time.Duration(p.records)
	if each*time.Duration(partBytes/max(recordBytes, 1)) <= slowPart {
		return math.MaxUint64
	}
	return uint64(max(slice/max(each, 1), 1))
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
		p.runs = decode.Merge(p.runs, out.Runs)
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
		p.count(k.src.PieceTokens())
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
	cuts    []uint32 // slots of which only the numbers of labels are known, and plans may cut them
	runs    map[uint32]tokenid.Runs
}

func (a *lookUp) work(ctx context.Context, d *decode.Decoder) error {
	p := a.span
	a.slots = make([]decode.Slot, p.hi-p.lo)
	if a.src.Filters() != nil || p.block.isRemoved() {
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
			if at.Shard == millrace.RemovedShard && a.refused == nil {
				a.refused = make([]uint32, len(a.slots))
			}
		}
	}
	if err := a.readLengths(ctx); err != nil || !a.known || len(a.cuts) == 0 {
		return err
	}
	return a.readCuts(ctx, d)
}

// mostCuts is the number of documents that a lookup reads. If there are more, the span is made, side by side.
const mostCuts = 64

// readCuts reads the documents that plans may cut, because the length store only counts their labels. The span stays
// unknown if they are many, if its block is read as a whole, or if one of them is bad by now.
func (a *lookUp) readCuts(ctx context.Context, d *decode.Decoder) error {
	if a.known = a.span.block == nil && len(a.cuts) <= mostCuts; !a.known {
		return nil
	}
	d.Begin(a.src, decode.Part{Slots: a.slots, Refused: a.refused})
	if err := d.ReadEntries(ctx, decode.Some(a.slots, a.cuts)); err != nil {
		return err
	}
	out := d.Finish()
	a.runs, a.known = out.Runs, out.Rejects == nil
	return nil
}

// readLengths fills in lengths from the length stores, and the answers of filters. It sets known if all of them are
// there.
func (a *lookUp) readLengths(ctx context.Context) (err error) {
	view := a.src.Lengths()
	defer view.Close()
	var lengths sources.KnownLengths
	known, last := true, uint32(millrace.RemovedShard)
	for i := range a.slots {
		s := &a.slots[i]
		if s.Shard == millrace.RemovedShard {
			a.refused[i] = filter.Own
			continue
		}
		if !known {
			continue
		}
		if s.Shard != last {
			if lengths, err = view.Of(ctx, s.Shard); err != nil {
				return err
			}
			last = s.Shard
		}
		n, ok := lengths.Tokens(s.Record)
		if !ok {
			known = false
			continue
		}
		s.Length = n
		if lengths.Patches != nil {
			if a.patches == nil {
				a.patches = make([]uint32, len(a.slots))
			}
			a.patches[i] = lengths.Patches(s.Record)
		}
		if lengths.Refused != nil {
			if a.refused[i], ok = lengths.Refused(s.Record, n); !ok {
				known = false
				continue
			}
			if a.refused[i]&filter.Own != 0 {
				continue
			}
		}
		if !a.label(uint32(i), lengths) {
			known = false
			continue
		}
		a.tokens += int64(s.Tokens(a.src.PieceTokens()))
	}
	a.known = known
	return nil
}

// label fills in the labels of a slot that are left out of the loss. It reports whether they are known.
func (a *lookUp) label(i uint32, lengths sources.KnownLengths) bool {
	if !a.src.HasUntrained() {
		return true
	}
	s := &a.slots[i]
	if lengths.Untrained == nil {
		return false
	}
	labels, ok := lengths.Untrained(s.Record)
	piece := a.src.PieceTokens()
	if isPiece := s.Tokens(piece) < s.Length; labels > 0 && (isPiece || s.MayBeCut(a.src)) {
		a.cuts = append(a.cuts, i)
	}
	s.Untrained = labels
	return ok
}

func (a *lookUp) settle() (action, error) {
	p := a.span
	p.slots, p.refused, p.phase, p.known = a.slots, a.refused, gathered, a.known
	if a.known {
		p.patches, p.tokens, p.runs = a.patches, a.tokens, a.runs
		a.sizes.learn(p)
	}
	if p.block.isRemoved() { // no document is left to be made
		a.memory.hold(p)
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
	var refused []uint32
	if a.span.known { // otherwise the decoders find the answers of filters
		refused = a.span.refused
	}
	a.entries = decode.InFileOrder(a.span.slots, refused)
	return nil
}

func (a *split) settle() (action, error) {
	p, n := a.span, len(a.entries)
	parts := int(max(min(a.maker.sizes.spanBytes(p)/partBytes+1, int64(4*a.parallel), int64(n)), 1))
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
		err = d.MakeText(ctx, a.text, a.memory.store)
	} else {
		err = d.ReadEntries(ctx, a.entries)
	}
	if err == nil {
		a.out = d.Finish()
	}
	return err
}

func (a *makePart) settle() (action, error) {
	a.pace.learn(&a.out)
	a.endPart(a.span, a.part, a.out)
	return nil, nil
}
