package feed

import (
	"context"
	"fmt"
	"math"
	"slices"

	"millrace"
	"millrace/sources"
	"millrace/sources/order"
)

// blockFeed is what a feed in a block order has beside its spans. The feed's mutex guards it.
//
// Blocks are known from a table or found by scanning on. Two scans serve: far reads on where blocks or lengths are
// unknown, near reads again what was dropped. As long as the budget suffices, near is never needed.
type blockFeed struct {
	next       millrace.SeekPoint // where the next block starts
	seekPoints []millrace.SeekPoint
	texts      []*block // those whose text is held
	spare      [][]byte // slabs for reuse
	near, far  *shardScan
	extending  bool // far is looking for the next block
}

func newBlockFeed(from millrace.SeekPoint) blockFeed {
	return blockFeed{next: from}
}

// takeSeekPoints returns the seek points of blocks that start at or before an ordinal, each once; the mutex is held.
func (f *Feed) takeSeekPoints(until millrace.Ordinal) []millrace.SeekPoint {
	n := 0
	for n < len(f.seekPoints) && f.seekPoints[n].Ordinal <= until {
		n++
	}
	out := slices.Clone(f.seekPoints[:n])
	f.seekPoints = slices.Delete(f.seekPoints, 0, n)
	return out
}

// blockIDs looks up the records of a span in a block order.
func (f *Feed) blockIDs(p *span, slots []slot) {
	b := p.block
	perm, permuted := f.src.Blocks().Permutation(b.seekPoint, b.size.Records)
	for i := range slots {
		at := uint64(f.stripe.Ordinal(p.lo+uint64(i)) - b.seekPoint.Ordinal)
		if permuted {
			at = perm.At(at)
		}
		slots[i].shard, slots[i].record = b.shard, b.seekPoint.Record+at
	}
}

// extendBlocks adds blocks until their spans reach a position; the mutex is held.
func (f *Feed) extendBlocks(limit uint64) (action, error) {
	blocks, added := f.src.Blocks(), false
	for f.frontier < limit && f.end == math.MaxUint64 {
		if blocks.Ends(f.next) {
			f.end = f.next.Ordinal
			f.news.Broadcast()
			break
		}
		shard := blocks.ShardAt(f.next.Epoch, f.next.Shard)
		size, known, over := f.src.BlockSize(shard, f.next.Block)
		switch {
		case known:
			f.addBlock(&block{seekPoint: f.next, shard: shard, size: size})
			added = true
		case over:
			if err := f.endShard(shard); err != nil {
				return nil, err
			}
		default:
			return f.scanOn(shard), nil
		}
	}
	if added {
		return f.choose()
	}
	return nil, nil
}

// endShard goes on to the next shard of the epoch's order, or to the next epoch.
func (f *Feed) endShard(shard uint32) error {
	if err := f.src.EndShard(shard, f.next.Block); err != nil {
		return fmt.Errorf("keep block table: %w", err)
	}
	was := f.next
	f.next = f.src.Blocks().AfterShard(was)
	if f.next.Epoch != was.Epoch && was.EpochStart == was.Ordinal {
		return f.src.NoRecords()
	}
	return nil
}

// addBlock cuts the stripe's part of the next block into spans.
func (f *Feed) addBlock(b *block) {
	lo := max(f.stripe.Position(b.seekPoint.Ordinal), f.head)
	f.next = order.AfterBlock(b.seekPoint, b.size.Records)
	hi := f.stripe.Position(f.next.Ordinal)
	per := min(max(partBytes*b.size.Records/max(b.size.Raw, 1), 1), maxSpan)
	for ; lo < hi; lo += per {
		p := &span{lo: lo, hi: min(lo+per, hi), block: b}
		b.spans = append(b.spans, p)
		f.spans = append(f.spans, p)
	}
	f.frontier = max(f.frontier, hi)
	f.seekPoints = append(f.seekPoints, b.seekPoint)
	if b.text != nil {
		f.texts = append(f.texts, b)
		f.spareText(b)
	}
}

// scanOn has far look for the next block, which nobody knows yet; nil where that has to wait. Text ahead of what is
// wanted needs the budget's leave.
func (f *Feed) scanOn(shard uint32) action {
	if f.extending || !f.scanFree(shard, f.next.Record, true) {
		return nil
	}
	charge := min(f.src.Blocks().Limit, 8*f.src.Manifest().Shards[shard].Size+slabBytes)
	if !f.quota.Take(charge) {
		if f.frontier >= max(f.want, f.demanded) {
			return nil
		}
		f.quota.Force(charge)
	}
	sc, old := f.scanAt(shard, f.next.Record, true)
	f.extending, sc.busy = true, true
	return func(ctx context.Context, _ *decoder) error {
		old.close()
		raw, err := sc.read(ctx, f.src, f.slab)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.extending = false
		sc.rest(raw)
		f.idle.Broadcast()
		if err != nil {
			return err
		}
		if raw == nil {
			f.quota.Force(-charge)
			return f.endShard(shard)
		}
		b := &block{seekPoint: f.next, shard: shard, size: order.BlockSize{Records: uint64(len(raw.records)), Raw: raw.raw}, text: raw, charge: raw.size()}
		f.quota.Force(b.charge - charge)
		f.src.AddBlock(b.seekPoint, shard, b.size)
		f.addBlock(b)
		return nil
	}
}

// at tells whether the scan reads on at a record.
func (sc *shardScan) at(shard uint32, record uint64) bool {
	return sc != nil && sc.shard == shard && sc.record == record
}

// scanFree tells whether scanAt has a scan to give.
func (f *Feed) scanFree(shard uint32, record uint64, far bool) bool {
	sc := f.near
	switch {
	case f.near.at(shard, record):
	case far || f.far.at(shard, record):
		sc = f.far
	}
	return sc == nil || !sc.busy
}

// scanAt returns a scan that reads on at a record, and the one it takes the place of, which the caller closes without
// the mutex.
func (f *Feed) scanAt(shard uint32, record uint64, far bool) (sc, old *shardScan) {
	if f.near.at(shard, record) {
		return f.near, nil
	}
	if f.far.at(shard, record) {
		return f.far, nil
	}
	role := &f.near
	if far {
		role = &f.far
	}
	old, *role = *role, &shardScan{shard: shard, record: record}
	return *role, old
}

// scanning tells whether a span waits for a scan that is under way.
func (f *Feed) scanning(p *span) bool {
	b := p.block
	return b != nil && b.text == nil && (b.scanning || f.near != nil && f.near.busy)
}

// readText has a known block's text read (again) for a span; nil where that has to wait.
func (f *Feed) readText(b *block, p *span, must, far bool) action {
	if b.scanning || !f.scanFree(b.shard, b.seekPoint.Record, far) {
		return nil
	}
	charge := int64(b.size.Raw)
	switch {
	case far:
		for !f.quota.Take(charge) {
			if !f.dropText(p) {
				f.quota.Force(charge)
				break
			}
		}
	case !f.room(charge, p, must):
		return nil
	}
	return f.beginText(b, far, charge)
}

// readNextText has the text of the block after b read while b is still being tokenised, if the budget has more than
// enough room.
func (f *Feed) readNextText(b *block) action {
	p := f.spanAt(b.spans[len(b.spans)-1].hi)
	if p == nil || p.held || p.lo >= f.ahead() {
		return nil
	}
	next := p.block
	if next.text != nil || next.scanning || !f.scanFree(next.shard, next.seekPoint.Record, false) {
		return nil
	}
	charge := int64(next.size.Raw)
	if !f.quota.Take(charge + leastAhead) {
		return nil
	}
	f.quota.Force(-leastAhead)
	return f.beginText(next, false, charge)
}

// beginText starts the reading of a known block's text, which is charged already.
func (f *Feed) beginText(b *block, far bool, charge int64) action {
	sc, old := f.scanAt(b.shard, b.seekPoint.Record, far)
	b.scanning, sc.busy = true, true
	return func(ctx context.Context, _ *decoder) error {
		old.close()
		raw, err := sc.read(ctx, f.src, f.slab)
		f.mu.Lock()
		defer f.mu.Unlock()
		b.scanning = false
		sc.rest(raw)
		f.idle.Broadcast()
		if err != nil {
			return err
		}
		if raw == nil || uint64(len(raw.records)) != b.size.Records {
			return blockChanged(f.src, b)
		}
		b.text, b.charge = raw, raw.size()
		f.quota.Force(b.charge - charge)
		f.texts = append(f.texts, b)
		f.spareText(b)
		return nil
	}
}

func blockChanged(s *sources.Source, b *block) error {
	return millrace.Errorf(millrace.ErrDamaged, "scan %s: block %d no longer has the %d records it had", s.Manifest().Shards[b.shard].Path, b.seekPoint.Block, b.size.Records)
}

// spareSlabs bounds the slabs kept for reuse, which no budget counts.
const spareSlabs = 8

// slab returns a buffer for raw text.
func (f *Feed) slab() []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.spare); n > 0 {
		s := f.spare[n-1]
		f.spare = f.spare[:n-1]
		return s
	}
	return make([]byte, 0, slabBytes)
}

// spareText drops a block's text once no span needs it; the mutex is held.
func (f *Feed) spareText(b *block) {
	if b.text != nil && b.idle(false) {
		f.dropBlock(b)
	}
}

// dropText makes room for a span by dropping the text of a block that would only be read again for tokens; the mutex
// is held.
func (f *Feed) dropText(p *span) bool {
	for _, b := range f.texts {
		if b != p.block && b != f.spans[0].block && b.idle(true) {
			f.dropBlock(b)
			return true
		}
	}
	return false
}

func (f *Feed) dropBlock(b *block) {
	for _, s := range b.text.slabs {
		if cap(s) == slabBytes && len(f.spare) < spareSlabs {
			f.spare = append(f.spare, s[:0])
		}
	}
	f.quota.Force(-b.charge)
	b.text, b.charge = nil, 0
	f.texts = slices.DeleteFunc(f.texts, func(t *block) bool { return t == b })
}

// stopScans ends both scans; no decoder may be running.
func (f *Feed) stopScans() {
	f.mu.Lock()
	near, far := f.near, f.far
	f.near, f.far = nil, nil
	f.mu.Unlock()
	near.close()
	far.close()
}

// makeFromText makes the tokens of a span of a block whose text is held.
func (m *decoder) makeFromText(p *span, text *rawBlock) error {
	m.open(p, 0)
	if err := m.placeText(text); err != nil {
		return err
	}
	m.finish()
	return nil
}

// placeText makes every slot of the span from its block's text.
func (m *decoder) placeText(text *rawBlock) error {
	for i := range m.span.slots {
		s := &m.span.slots[i]
		m.record = text.record(s.record, m.record.Tokens[:0])
		m.slots[0] = uint32(i)
		if err := m.place(s.shard, &m.record, m.slots[:1]); err != nil {
			return err
		}
	}
	return nil
}
