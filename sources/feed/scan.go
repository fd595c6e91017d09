package feed

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"

	"millrace"
	"millrace/sources"
	"millrace/sources/order"
)

// slabBytes is the size of a slab of raw text; a longer record gets a slab of its own.
const slabBytes = 1 << 20

// rawBlock is the text of one block's records, or the tokens as little-endian bytes, in file order.
type rawBlock struct {
	first   uint64 // record
	raw     uint64 // uncompressed bytes of the file
	records []rawRecord
	errs    map[uint32]error // by position: records to be quarantined
	others  [][]any          // of each record, where any are asked for
	values  int64            // bytes that these take, about
	slabs   [][]byte
	tokens  bool // slabs hold tokens
}

// rawRecord is where a record's bytes lie in the slabs.
type rawRecord struct {
	offset int64 // in the file
	off    uint32
	n      uint32
	slab   uint32
}

// size returns the bytes that the block takes in memory.
func (b *rawBlock) size() (n int64) {
	for _, s := range b.slabs {
		n += int64(cap(s))
	}
	return n + 24*int64(cap(b.records)) + b.values
}

// add copies one record.
func (b *rawBlock) add(r *sources.Record, slab func() []byte) {
	b.raw += uint64(r.Raw)
	b.keepOthers(r.Others)
	if r.Err != nil {
		if b.errs == nil {
			b.errs = make(map[uint32]error)
		}
		b.errs[uint32(len(b.records))] = r.Err
		b.records = append(b.records, rawRecord{offset: r.Offset})
		return
	}
	n := len(r.Text) + 4*len(r.Tokens)
	last := len(b.slabs) - 1
	if last < 0 || len(b.slabs[last])+n > cap(b.slabs[last]) {
		if n > slabBytes {
			b.slabs = append(b.slabs, make([]byte, 0, n))
		} else {
			b.slabs = append(b.slabs, slab())
		}
		last++
	}
	at := b.slabs[last]
	b.records = append(b.records, rawRecord{offset: r.Offset, slab: uint32(last), off: uint32(len(at)), n: uint32(n)})
	at = append(at, r.Text...)
	for _, t := range r.Tokens {
		at = binary.LittleEndian.AppendUint32(at, t)
	}
	b.slabs[last] = at
}

// keepOthers copies a record's other values; one that is bad has none.
func (b *rawBlock) keepOthers(values []any) {
	if values == nil && b.others == nil {
		return
	}
	for len(b.others) < len(b.records) { // bad ones before the first that has values
		b.others = append(b.others, nil)
	}
	b.others = append(b.others, slices.Clone(values))
	b.values += 24
	for _, v := range values {
		if text, ok := v.(string); ok {
			b.values += int64(len(text))
		}
		b.values += 24
	}
}

// record returns a record's content; its text is that of the slab, its tokens are appended to scratch.
func (b *rawBlock) record(number uint64, scratch []uint32) sources.Record {
	at := uint32(number - b.first)
	ref := b.records[at]
	r := sources.Record{Number: number, Offset: ref.offset, Err: b.errs[at]}
	if r.Err != nil {
		return r
	}
	if b.others != nil {
		r.Others = b.others[at]
	}
	var bytes []byte
	if len(b.slabs) > 0 {
		bytes = b.slabs[ref.slab][ref.off : ref.off+ref.n]
	}
	if !b.tokens {
		r.Text = bytes
		return r
	}
	for ; len(bytes) > 0; bytes = bytes[4:] {
		scratch = append(scratch, binary.LittleEndian.Uint32(bytes))
	}
	r.Tokens = scratch
	return r
}

// shardScan reads one shard block by block from some block on. It holds the shard and a coroutine until stopped or at
// the end.
type shardScan struct {
	shard  uint32
	record uint64 // first of the block that comes next
	busy   bool   // some decoder is reading it
	next   func() (*rawBlock, error, bool)
	stop   func()
}

// read returns the next block, nil at the shard's end. All reads of a scan are given contexts of the same Run.
func (sc *shardScan) read(ctx context.Context, s *sources.Source, slab func() []byte) (*rawBlock, error) {
	if sc.next == nil {
		sc.next, sc.stop = iter.Pull2(scanBlocks(ctx, s, sc.shard, sc.record, slab))
	}
	b, err, ok := sc.next()
	if !ok || err != nil {
		return nil, err
	}
	return b, nil
}

// rest ends one reading, with the feed's mutex held.
func (sc *shardScan) rest(b *rawBlock) {
	sc.busy = false
	if b != nil {
		sc.record = b.first + uint64(len(b.records))
	}
}

// close ends the scan; nobody may be reading it.
func (sc *shardScan) close() {
	if sc != nil && sc.stop != nil {
		sc.stop()
	}
}

// errEnough ends a scan that nobody reads any more.
var errEnough = fmt.Errorf("scan: enough")

// scanBlocks yields the blocks of a shard from the one that begins at a record. The first error is the last thing it
// yields.
func scanBlocks(ctx context.Context, s *sources.Source, shard uint32, from uint64, slab func() []byte) iter.Seq2[*rawBlock, error] {
	return func(yield func(*rawBlock, error) bool) {
		o, err := s.Acquire(ctx, shard)
		if err != nil {
			yield(nil, err)
			return
		}
		defer s.Release(o)
		cut := order.Cutter{Limit: s.Blocks().Limit}
		tokens := s.HoldsTokens()
		b := &rawBlock{first: from, tokens: tokens}
		number := from
		take := func(r sources.Record) error {
			if r.Number != number {
				return millrace.Errorf(millrace.ErrDamaged, "scan %s: record %d came in place of %d", o.Path(), r.Number, number)
			}
			if err := o.HostFailure(&r); err != nil {
				return err
			}
			if cut.Cuts(r.Raw) {
				if !yield(b, nil) {
					return errEnough
				}
				b = &rawBlock{first: number, tokens: tokens}
			}
			b.add(&r, slab)
			number++
			return ctx.Err()
		}
		what := func() string { return s.SampleName(shard, number) }
		err = sources.Fence(millrace.ErrDamaged, what, func() error { return o.Scan(ctx, from, take) })
		switch {
		case err == errEnough:
		case err != nil:
			yield(nil, o.Explain(err))
		case len(b.records) > 0:
			yield(b, nil)
		}
	}
}
