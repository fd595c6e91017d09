package sources

import (
	"context"
	"fmt"
	"math"
	"slices"

	"millrace"
)

// blockFeed is what a feed in a block order has beside its packs. The feed's mutex guards it.
//
// Blocks are known from a table or found by scanning on. Two scans serve: far reads on where blocks or lengths are unknown, near
// reads again what was dropped. As long as the budget suffices, near is never needed.
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

// blockIDs looks up the records of a pack in a block order.
func (f *Feed) blockIDs(p *pack, slots []slot) {
	b := p.block
	perm, permuted := f.src.blocks.permutation(b.seekPoint, b.size.Records)
	for i := range slots {
		at := uint64(f.stripe.ordinal(p.lo+uint64(i)) - b.seekPoint.Ordinal)
		if permuted {
			at = perm.At(at)
		}
		slots[i].shard, slots[i].record = b.shard, b.seekPoint.Record+at
	}
}

// extendBlocks adds blocks until their packs reach a seat; the mutex is held.
func (f *Feed) extendBlocks(limit uint64) (move, error) {
	order, added := f.src.blocks, false
	for f.frontier < limit && f.end == math.MaxUint64 {
		if order.epochs > 0 && uint32(f.next.Epoch) >= order.epochs {
			f.end = f.next.Ordinal
			f.news.Broadcast()
			break
		}
		shard := order.shardAt(f.next.Epoch, f.next.Shard)
		size, known, over := f.src.tables.known(shard, f.next.Block)
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
	if err := f.src.tables.ended(shard, f.next.Block); err != nil {
		return fmt.Errorf("keep block table: %w", err)
	}
	was := f.next
	f.next = f.src.blocks.afterShard(was)
	if f.next.Epoch != was.Epoch && was.EpochStart == was.Ordinal {
		return f.src.holdsNothing()
	}
	return nil
}

// addBlock cuts the stripe's part of the next block into packs.
func (f *Feed) addBlock(b *block) {
	lo := max(f.stripe.seat(b.seekPoint.Ordinal), f.head)
	f.next = afterBlock(b.seekPoint, b.size.Records)
	hi := f.stripe.seat(f.next.Ordinal)
	per := min(max(packBytes*b.size.Records/max(b.size.Raw, 1), 1), maxPack)
	for ; lo < hi; lo += per {
		p := &pack{lo: lo, hi: min(lo+per, hi), block: b}
		b.packs = append(b.packs, p)
		f.packs = append(f.packs, p)
	}
	f.frontier = max(f.frontier, hi)
	f.seekPoints = append(f.seekPoints, b.seekPoint)
	if b.text != nil {
		f.texts = append(f.texts, b)
		f.spareText(b)
	}
}

// scanOn has far look for the next block, which nobody knows yet; nil where that has to wait. Text ahead of what is wanted needs
// the budget's leave.
func (f *Feed) scanOn(shard uint32) move {
	if f.extending || !f.scanFree(shard, f.next.Record, true) {
		return nil
	}
	charge := min(f.src.blocks.limit, 8*f.src.manifest.Shards[shard].Size+slabBytes)
	if !f.account.take(charge) {
		if f.frontier >= max(f.want, f.demanded) {
			return nil
		}
		f.account.force(charge)
	}
	sc, old := f.scanAt(shard, f.next.Record, true)
	f.extending, sc.busy = true, true
	return func(ctx context.Context, _ *maker) error {
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
			f.account.force(-charge)
			return f.endShard(shard)
		}
		b := &block{seekPoint: f.next, shard: shard, size: blockSize{uint64(len(raw.records)), raw.raw}, text: raw, charge: raw.size()}
		f.account.force(b.charge - charge)
		f.src.tables.found(b.seekPoint, shard, b.size)
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

// scanAt returns a scan that reads on at a record, and the one it takes the place of, which the caller closes without the mutex.
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

// scanning tells whether a pack waits for a scan that is under way.
func (f *Feed) scanning(p *pack) bool {
	b := p.block
	return b != nil && b.text == nil && (b.scanning || f.near != nil && f.near.busy)
}

// readText has a known block's text read (again) for a pack; nil where that has to wait.
func (f *Feed) readText(b *block, p *pack, must, far bool) move {
	if b.scanning || !f.scanFree(b.shard, b.seekPoint.Record, far) {
		return nil
	}
	charge := int64(b.size.Raw)
	switch {
	case far:
		for !f.account.take(charge) {
			if !f.dropText(p) {
				f.account.force(charge)
				break
			}
		}
	case !f.room(charge, p, must):
		return nil
	}
	return f.beginText(b, far, charge)
}

// readNextText has the text of the block after b read while b is still being tokenised, if the budget has more than enough room.
func (f *Feed) readNextText(b *block) move {
	p := f.packAt(b.packs[len(b.packs)-1].hi)
	if p == nil || p.held || p.lo >= f.ahead() {
		return nil
	}
	next := p.block
	if next.text != nil || next.scanning || !f.scanFree(next.shard, next.seekPoint.Record, false) {
		return nil
	}
	charge := int64(next.size.Raw)
	if !f.account.take(charge + leastAhead) {
		return nil
	}
	f.account.force(-leastAhead)
	return f.beginText(next, false, charge)
}

// beginText starts the reading of a known block's text, which is charged already.
func (f *Feed) beginText(b *block, far bool, charge int64) move {
	sc, old := f.scanAt(b.shard, b.seekPoint.Record, far)
	b.scanning, sc.busy = true, true
	return func(ctx context.Context, _ *maker) error {
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
			return f.src.blockChanged(b)
		}
		b.text, b.charge = raw, raw.size()
		f.account.force(b.charge - charge)
		f.texts = append(f.texts, b)
		f.spareText(b)
		return nil
	}
}

func (s *Source) blockChanged(b *block) error {
	return millrace.Errorf(millrace.ErrDamaged, "scan %s: block %d no longer has the %d records it had", s.manifest.Shards[b.shard].Path, b.seekPoint.Block, b.size.Records)
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

// spareText drops a block's text once no pack needs it; the mutex is held.
func (f *Feed) spareText(b *block) {
	if b.text != nil && b.idle(false) {
		f.dropBlock(b)
	}
}

// dropText makes room for a pack by dropping the text of a block that would only be read again for tokens; the mutex is held.
func (f *Feed) dropText(p *pack) bool {
	for _, b := range f.texts {
		if b != p.block && b != f.packs[0].block && b.idle(true) {
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
	f.account.force(-b.charge)
	b.text, b.charge = nil, 0
	f.texts = slices.DeleteFunc(f.texts, func(t *block) bool { return t == b })
}

// stopScans ends both scans; no maker may be running.
func (f *Feed) stopScans() {
	f.mu.Lock()
	near, far := f.near, f.far
	f.near, f.far = nil, nil
	f.mu.Unlock()
	near.close()
	far.close()
}

// makeFromText makes the tokens of a pack of a block whose text is held.
func (m *maker) makeFromText(p *pack, text *rawBlock) error {
	m.open(p, 0)
	if err := m.placeText(text); err != nil {
		return err
	}
	m.finish()
	return nil
}

// placeText makes every slot of the pack from its block's text.
func (m *maker) placeText(text *rawBlock) error {
	for i := range m.pack.slots {
		s := &m.pack.slots[i]
		m.record = text.record(s.record, m.record.Tokens[:0])
		m.slots[0] = uint32(i)
		if err := m.place(s.shard, &m.record, m.slots[:1]); err != nil {
			return err
		}
	}
	return nil
}
