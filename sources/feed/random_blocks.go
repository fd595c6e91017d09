package feed

import (
	"context"
	"fmt"

	"millrace"
	"millrace/sources/order"
)

// find returns the block that holds an ordinal. Blocks that nobody knows yet are read for their size, from the newest
// seek point on.
func (r *asideRead) find(ctx context.Context, n millrace.Ordinal) (*block, error) {
	s, at := r.f.src, r.seekPoint(n)
	var scan *shardScan
	defer func() { scan.close() }()
	for {
		if s.Blocks().Ends(at) {
			return nil, millrace.Errorf(millrace.ErrInvalid, "fetch %s ordinal %d: the stream ends at %d: %w", s.Name(), n, at.Ordinal, errPastEnd)
		}
		shard := s.Blocks().ShardAt(at.Epoch, at.Shard)
		size, known, over := s.BlockSize(shard, at.Block)
		if !known && !over {
			if !scan.at(shard, at.Record) {
				scan.close()
				scan = &shardScan{shard: shard, record: at.Record}
			}
			raw, err := scan.read(ctx, s, newSlab)
			if err != nil {
				return nil, err
			}
			scan.rest(raw)
			if over = raw == nil; !over {
				size = order.BlockSize{Records: uint64(len(raw.records)), Raw: raw.raw}
				s.AddBlock(at, shard, size)
				r.keepText(at, raw)
			}
		}
		if over {
			if err := s.EndShard(shard, at.Block); err != nil {
				return nil, fmt.Errorf("keep block table: %w", err)
			}
			was := at
			if at = s.Blocks().AfterShard(was); at.Epoch != was.Epoch && was.EpochStart == was.Ordinal {
				return nil, s.NoRecords()
			}
			continue
		}
		next := order.AfterBlock(at, size.Records)
		if n < next.Ordinal {
			return &block{seekPoint: at, shard: shard, size: size}, nil
		}
		at = next
	}
}

// seek point is where the search for an ordinal begins.
func (r *asideRead) seekPoint(n millrace.Ordinal) millrace.SeekPoint {
	r.f.mu.Lock()
	at, a := r.f.first, r.f.aside
	for _, p := range r.f.spans {
		if p.block != nil && p.block.seekPoint.Ordinal <= n {
			at = p.block.seekPoint
		}
	}
	r.f.mu.Unlock()
	if a != nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.seekPoint.Ordinal >= at.Ordinal && a.seekPoint.Ordinal <= n {
			at = a.seekPoint
		}
	}
	return at
}

func newSlab() []byte { return make([]byte, 0, slabBytes) }

// readBlock makes documents of one block: record by record where the shard can be read so, else from the block's text.
func (r *asideRead) readBlock(ctx context.Context, b *block, wanted []want, slots []slot) error {
	o, err := r.f.src.Acquire(ctx, b.shard)
	if err != nil {
		return err
	}
	_, counted := o.Count() // in block orders nobody makes an index
	random := counted && o.Seekable()
	r.f.src.Release(o)
	if random {
		return r.readSlots(ctx, wanted, slots)
	}
	text, err := r.blockText(ctx, b)
	if err != nil {
		return err
	}
	lengths, err := r.f.remembered(ctx, slots)
	if err != nil {
		return err
	}
	m := r.decoder(&span{slots: slots, block: b}, wanted, lengths)
	defer m.note()
	return m.placeText(text)
}

// blockText returns a block's text, reading it where it is not the one that is kept.
func (r *asideRead) blockText(ctx context.Context, b *block) (*rawBlock, error) {
	if r.a != nil {
		r.a.reading.Lock()
		defer r.a.reading.Unlock()
		if r.a.text != nil && r.a.of == b.seekPoint {
			return r.a.text, nil
		}
	}
	scan := &shardScan{shard: b.shard, record: b.seekPoint.Record}
	defer scan.close()
	text, err := scan.read(ctx, r.f.src, newSlab)
	if err != nil {
		return nil, err
	}
	if text == nil || uint64(len(text.records)) != b.size.Records {
		return nil, blockChanged(r.f.src, b)
	}
	if r.a != nil {
		r.a.text, r.a.of = text, b.seekPoint
	}
	return text, nil
}

// keepText keeps the text of the block that was read last.
func (r *asideRead) keepText(at millrace.SeekPoint, text *rawBlock) {
	if r.a == nil {
		return
	}
	r.a.reading.Lock()
	defer r.a.reading.Unlock()
	r.a.text, r.a.of = text, at
}
