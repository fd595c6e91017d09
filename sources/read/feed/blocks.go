package feed

import (
	"context"
	"fmt"
	"math"
	"slices"

	"millrace"
	"millrace/sources"
	"millrace/sources/read/feed/decode"
	"millrace/sources/read/order"
)

// blockReader finds the blocks of a feed in a block order and reads their text. The feed's mutex guards it.
//
// A block is known from a table, or found by a scan. There are two scans. far reads unknown blocks, and texts for
// unknown lengths. near reads texts again for tokens. A sufficient budget makes near unnecessary.
type blockReader struct {
	src    *sources.Source
	cursor *cursor
	queue  *queue
	memory *memory
	sizes  *sizes
	due    *signals

	next       millrace.SeekPoint // start of the next block
	seekPoints []millrace.SeekPoint
	near, far  *scan
	extending  bool // far looks for the next block
	warned     bool // that blocks are read in parts
}

// scan is a decode.Scan in one of the two roles.
type scan struct {
	*decode.Scan
	busy bool // a decoder reads it
}

// moveTo sets the reader to a block. The feed has not run yet.
func (r *blockReader) moveTo(at millrace.SeekPoint) {
	r.next = at
	r.cursor.frontier = r.cursor.stripe.Position(at.Ordinal)
}

// takeSeekPoints returns the seek points of blocks that start at or before an ordinal, each once.
func (r *blockReader) takeSeekPoints(until millrace.Ordinal) []millrace.SeekPoint {
	n := 0
	for n < len(r.seekPoints) && r.seekPoints[n].Ordinal <= until {
		n++
	}
	out := slices.Clone(r.seekPoints[:n])
	r.seekPoints = slices.Delete(r.seekPoints, 0, n)
	return out
}

// addUntil adds known blocks until their spans reach a position, and reports whether it added any. If it comes to an
// unknown block, it returns the action that reads it, or nil if the action has to wait. It adds nothing while far looks
// for the next block, although another reader of the source may have found it: far's text belongs to that block.
func (r *blockReader) addUntil(position uint64) (act action, added bool, err error) {
	order := r.src.Blocks()
	for r.cursor.frontier < position && r.cursor.end == noEnd && !r.extending {
		if order.Ends(r.next) {
			r.cursor.end = r.next.Ordinal
			r.due.news = true
			break
		}
		shard, size, known, over := r.src.BlockAt(r.next)
		switch {
		case known:
			r.add(&block{seekPoint: r.next, shard: shard, size: size})
			added = true
		case over:
			if err := r.endShard(shard); err != nil {
				return nil, added, err
			}
		default:
			return r.scanOn(shard), added, nil
		}
	}
	return nil, added, nil
}

// endShard moves on to the next shard of the epoch's order, or to the next epoch.
func (r *blockReader) endShard(shard uint32) (err error) {
	r.next, err = shardAfter(r.src, shard, r.next)
	return err
}

// shardAfter returns the start of the shard that follows the one that ends at a seek point, and keeps the ended shard's
// block table. An epoch without records is an error.
func shardAfter(src *sources.Source, shard uint32, at millrace.SeekPoint) (millrace.SeekPoint, error) {
	if err := endShard(src, shard, at.Block); err != nil {
		return at, err
	}
	next := src.Blocks().AfterShard(at)
	if next.Epoch != at.Epoch && at.EpochStart == at.Ordinal {
		return next, src.NoRecords()
	}
	return next, nil
}

// add cuts the stripe's part of the next block into spans.
func (r *blockReader) add(b *block) {
	stripe := r.cursor.stripe
	lo := max(stripe.Position(b.seekPoint.Ordinal), r.cursor.head)
	r.next = order.AfterBlock(b.seekPoint, b.size.Records)
	hi := stripe.Position(r.next.Ordinal)
	per := min(max(partBytes*b.size.Records/max(b.size.Raw, 1), 1), maxSpan)
	for ; lo < hi; lo += per {
		p := &span{lo: lo, hi: min(lo+per, hi), block: b}
		b.spans = append(b.spans, p)
		r.queue.push(p)
	}
	r.cursor.frontier = max(r.cursor.frontier, hi)
	r.seekPoints = append(r.seekPoints, b.seekPoint)
	r.memory.dropIdleText(b)
}

// scanOn lets far look for the next block of unknown size. It returns nil if the scan has to wait. Text ahead of the
// wanted positions needs room in the budget.
func (r *blockReader) scanOn(shard uint32) action {
	if !r.isFree(shard, r.next.Record, true) {
		return nil
	}
	charge := r.memory.store.Memory(min(r.src.Blocks().Limit, 8*r.src.Manifest().Shards[shard].Size+decode.SlabBytes))
	if !r.memory.quota.Take(charge) {
		if r.cursor.frontier >= r.cursor.required() {
			return nil
		}
		charge = min(charge, r.mostText())
		r.memory.quota.Force(charge)
	}
	r.extending = true
	return &scanOn{textRead: r.startScan(shard, r.next.Record, true, charge), shard: shard}
}

// isFree reports whether no decoder reads the scan that startScan would take or replace.
func (r *blockReader) isFree(shard uint32, record uint64, far bool) bool {
	s := r.near
	switch {
	case r.near != nil && r.near.IsAt(shard, record):
	case far || r.far != nil && r.far.IsAt(shard, record):
		s = r.far
	}
	return s == nil || !s.busy
}

// startScan begins the reading of a text. The caller has charged charge bytes for it. It takes the scan that continues
// at the text's first record, or puts a new one in the place of near or far.
func (r *blockReader) startScan(shard uint32, record uint64, far bool, charge int64) textRead {
	out := textRead{reader: r, charge: charge, wanted: decode.Wanted{Most: charge}}
	switch {
	case r.near != nil && r.near.IsAt(shard, record):
		out.scan = r.near
	case r.far != nil && r.far.IsAt(shard, record):
		out.scan = r.far
	default:
		role := &r.near
		if far {
			role = &r.far
		}
		out.replaced = *role
		*role = &scan{Scan: decode.NewScan(shard, record)}
		out.scan = *role
	}
	out.scan.busy = true
	return out
}

// isReading reports whether a span waits for a scan that is under way.
func (r *blockReader) isReading(p *span) bool {
	return !p.block.has(p) && (p.block.reading || r.near != nil && r.near.busy)
}

// readText reads a known block's text, again or for the first time, for a span. It returns nil if the reading has to
// wait.
func (r *blockReader) readText(p *span, must, far bool) action {
	b := p.block
	if b.reading || b.isMaking() || !r.isFree(b.shard, b.seekPoint.Record, far) {
		return nil
	}
	charge := r.memory.store.Memory(int64(b.size.Raw))
	if b.isInParts || !r.fits(charge) {
		return r.readPart(p, must, far)
	}
	if far {
		r.memory.roomForText(charge, p)
	} else if !r.memory.room(charge, p, must) {
		return nil
	}
	return r.beginText(b, far, charge)
}

// readEarly reads the text of a block while the one before is being tokenised, if the budget keeps `spare` bytes.
func (r *blockReader) readEarly(b *block, spare int64) action {
	if b.isRemoved() || b.text != nil || b.reading || !r.isFree(b.shard, b.seekPoint.Record, false) {
		return nil
	}
	charge := r.memory.store.Memory(int64(b.size.Raw))
	if b.isInParts || !r.fits(charge) || !r.memory.quota.Take(charge+spare) {
		return nil
	}
	r.memory.quota.Force(-spare)
	return r.beginText(b, false, charge)
}

// beginText starts the reading of a known block's text, which is charged already. A part that is held goes.
func (r *blockReader) beginText(b *block, far bool, charge int64) *readText {
	if b.text != nil {
		r.memory.dropText(b)
	}
	b.reading = true
	act := &readText{textRead: r.startScan(b.shard, b.seekPoint.Record, far, charge), block: b, hi: math.MaxUint64}
	act.wanted = r.whole(charge)
	return act
}

// takeScans removes the scans, also those that unfinished actions would have closed, and returns them. No decoder may
// be running.
func (r *blockReader) takeScans(unfinished []action) []*scan {
	scans := []*scan{r.near, r.far}
	r.near, r.far = nil, nil
	for _, act := range unfinished {
		if a, ok := act.(*readText); ok {
			scans = append(scans, a.replaced)
		}
	}
	return scans
}

// textRead is the common part of the actions that read a text.
type textRead struct {
	reader   *blockReader
	scan     *scan
	replaced *scan // to be closed
	wanted   decode.Wanted
	charge   int64
	text     *decode.Text // nil at the shard's end
}

func (a *textRead) work(ctx context.Context, _ *decode.Decoder) (err error) {
	a.replaced.close()
	a.text, err = a.scan.Read(ctx, a.reader.src, a.reader.memory.store, a.reader.memory.large, a.wanted)
	return err
}

// endScan frees the scan for others.
func (a *textRead) endScan() {
	a.scan.busy = false
	a.scan.Pass(a.text)
	a.reader.due.idle = true
}

// scanOn is the action of blockReader.scanOn.
type scanOn struct {
	textRead
	shard uint32
}

func (a *scanOn) settle() (action, error) {
	a.endScan()
	r := a.reader
	r.extending = false
	if a.text == nil {
		r.memory.quota.Force(-a.charge)
		return nil, r.endShard(a.shard)
	}
	b := &block{seekPoint: r.next, shard: a.shard, hi: math.MaxUint64,
		size: order.BlockSize{Records: a.text.Records(), Raw: a.text.Raw()}}
	if a.text.IsHollow() {
		b.isInParts = true
		r.memory.quota.Force(-a.charge)
	} else {
		r.memory.holdText(b, a.text, a.charge)
	}
	r.add(b)
	return nil, addBlock(r.src, b.seekPoint, a.shard, a.text)
}

// addBlock remembers the size of a block that a scan found. With the last block of a shard it keeps the shard's block
// table, so that a later run, or the lengths of the block, need no scan.
func addBlock(src *sources.Source, at millrace.SeekPoint, shard uint32, text *decode.Text) error {
	src.AddBlock(at, shard, order.BlockSize{Records: text.Records(), Raw: text.Raw()})
	if !text.IsLast() {
		return nil
	}
	return endShard(src, shard, at.Block+1)
}

func endShard(src *sources.Source, shard, block uint32) error {
	if err := src.EndShard(shard, block); err != nil {
		return fmt.Errorf("keep block table: %w", err)
	}
	return nil
}

// readText is the action of blockReader.readText.
type readText struct {
	textRead
	block  *block
	lo, hi uint64 // the stripe positions whose records the text has
}

func (a *readText) work(ctx context.Context, d *decode.Decoder) error {
	if a.hi != math.MaxUint64 {
		a.wanted.Only = a.reader.only(a.block, a.lo, a.hi)
	}
	return a.textRead.work(ctx, d)
}

func (a *readText) settle() (action, error) {
	a.endScan()
	r, b := a.reader, a.block
	b.reading = false
	if a.text == nil || a.text.Records() != b.size.Records {
		r.memory.discard(a.text)
		return nil, blockChanged(r.src, b)
	}
	if a.text.IsHollow() {
		b.isInParts = true
		r.memory.quota.Force(-a.charge)
		return nil, nil
	}
	r.memory.holdText(b, a.text, a.charge)
	b.lo, b.hi = a.lo, a.hi
	r.memory.dropIdleText(b)
	return nil, nil
}

// close ends a scan, which may be nil. No decoder may be reading it.
func (s *scan) close() {
	if s != nil {
		s.Close()
	}
}

func blockChanged(s *sources.Source, b *block) error {
	return millrace.Errorf(millrace.ErrDamaged,
		"scan %s: block %d no longer has its %d records: the file changed; restore it, or begin a new run with it",
		s.Manifest().Shards[b.shard].Path, b.seekPoint.Block, b.size.Records)
}
