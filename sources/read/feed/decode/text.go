package decode

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"

	"millrace/sources"
	"millrace/sources/format/parts/fields"
)

// Text holds the records of one block in file order: their text, or their tokens as little-endian bytes. Their bytes
// follow each other through slabs of SlabBytes, of which all but the last are full. A record may begin in one slab and
// end in another.
//
// A text may hold a part of its block's records, or none: then it has let them go (Wanted). It counts all of them.
type Text struct {
	wanted  Wanted
	first   uint64   // record
	count   uint64   // records of the block
	raw     uint64   // uncompressed bytes of the file
	numbers []uint64 // ascending, of records; nil: they are those from first on
	records []rawRecord
	hollow  bool             // it holds no record
	errs    map[uint32]error // by position: records to be quarantined
	tooLong map[uint32]bool  // by position: Record.TooLong, of documents that were made before
	others  [][]any          // of each record, if the source asks for any
	values  int64            // estimated bytes of others
	places  []int64          // of the first slabs, which are in the store's file
	slabs   [][]byte         // those behind them, in memory
	stays   bool             // the file had no room: the slabs in memory stay there
	tokens  bool             // the format is one of tokens
	last    bool             // the shard ends with it
	shares  atomic.Int32     // its holders, less one
}

// rawRecord is the place of a record's bytes in the slabs.
type rawRecord struct {
	offset int64 // in the file
	slab   uint32
	off    uint32 // in the slab
	n      uint32
	madeOf uint32 // 1 + the bytes of the text of a record that was made before; 0: of the file
}

// Records returns the number of records.
func (t *Text) Records() uint64 { return t.count }

// IsHollow reports whether the text has let its records go, because they need more memory than it may take.
func (t *Text) IsHollow() bool { return t.hollow }

// IsLast reports whether the shard ends with the block.
func (t *Text) IsLast() bool { return t.last }

// Raw returns the uncompressed bytes of the block in its file.
func (t *Text) Raw() uint64 { return t.raw }

// Share returns the text for one more holder. Each one recycles it.
func (t *Text) Share() *Text {
	t.shares.Add(1)
	return t
}

// Recycle ends the use of a text by one holder. The last one gives back its room in a store.
func (t *Text) Recycle(store Store) {
	if t.shares.Add(-1) >= 0 {
		return
	}
	t.empty(store)
}

// empty gives back the room of the records' bytes.
func (t *Text) empty(store Store) {
	for _, at := range t.places {
		store.File.give(at)
	}
	for _, b := range t.slabs {
		store.Slabs.recycle(b)
	}
	t.places, t.slabs = nil, nil
}

// Size returns the bytes that the text takes in memory.
func (t *Text) Size() int64 {
	return SlabBytes*int64(len(t.slabs)) + 8*int64(cap(t.places)) + 8*int64(cap(t.numbers)) +
		24*int64(cap(t.records)) + t.values
}

// IsInFile reports whether a part of the text is in the store's file.
func (t *Text) IsInFile() bool { return len(t.places) > 0 }

// add counts one record, and copies it if it is wanted.
func (t *Text) add(r *sources.Record, store Store) {
	number := t.first + t.count
	t.raw += uint64(r.Raw)
	t.count++
	switch {
	case t.hollow:
		return
	case t.wanted.Only == nil:
		t.copy(r, store)
		if len(t.slabs) > heldSlabs && SlabBytes*int64(len(t.slabs)) > t.wanted.Most {
			t.letGo(store)
		}
	case t.wanted.Only(number):
		t.numbers = append(t.numbers, number)
		t.copy(r, store)
	}
}

// letGo forgets the records.
func (t *Text) letGo(store Store) {
	t.empty(store)
	t.records, t.errs, t.tooLong, t.others, t.values, t.hollow = nil, nil, nil, nil, 0, true
}

// copy copies one record.
func (t *Text) copy(r *sources.Record, store Store) {
	t.keepOthers(r.Others)
	if r.Err != nil {
		t.errs = with(t.errs, uint32(len(t.records)), r.Err)
		t.records = append(t.records, rawRecord{offset: r.Offset})
		return
	}
	ref := rawRecord{offset: r.Offset, n: uint32(len(r.Text) + 4*len(r.Tokens))}
	ref.slab, ref.off = t.end()
	if r.Made {
		ref.madeOf = uint32(r.MadeOf) + 1
	}
	if r.TooLong {
		t.tooLong = with(t.tooLong, uint32(len(t.records)), true)
	}
	t.records = append(t.records, ref)
	t.write(r.Text, store)
	for tokens := range slices.Chunk(r.Tokens, 256) {
		var buf [4 * 256]byte
		for i, token := range tokens {
			binary.LittleEndian.PutUint32(buf[4*i:], token)
		}
		t.write(buf[:4*len(tokens)], store)
	}
}

// end returns the place behind the last byte.
func (t *Text) end() (slab, off uint32) {
	slab = uint32(len(t.places) + len(t.slabs))
	if n := len(t.slabs); n > 0 && len(t.slabs[n-1]) < SlabBytes {
		return slab - 1, uint32(len(t.slabs[n-1]))
	}
	return slab, 0
}

// write appends bytes.
func (t *Text) write(bytes []byte, store Store) {
	for len(bytes) > 0 {
		if _, off := t.end(); off == 0 {
			if len(t.slabs) >= heldSlabs {
				t.put(store)
			}
			t.slabs = append(t.slabs, store.Slabs.take())
		}
		last := &t.slabs[len(t.slabs)-1]
		n := min(len(bytes), SlabBytes-len(*last))
		*last = append(*last, bytes[:n]...)
		bytes = bytes[n:]
	}
}

// put moves the slabs in memory to the file, as long as it has room.
func (t *Text) put(store Store) {
	for len(t.slabs) > 0 && !t.stays {
		at, ok := store.File.put(t.slabs[0])
		if !ok {
			t.stays = true
			return
		}
		t.places = append(t.places, at)
		store.Slabs.recycle(t.slabs[0])
		t.slabs = slices.Delete(t.slabs, 0, 1)
	}
}

// finish ends the filling of a text.
func (t *Text) finish(store Store) {
	t.wanted = Wanted{}
	if t.IsInFile() {
		t.put(store)
	}
}

// keepOthers copies a record's other values. Only a bad record without a field has any.
func (t *Text) keepOthers(values []any) {
	if values == nil && t.others == nil {
		return
	}
	for len(t.others) < len(t.records) { // bad records before the first that has values
		t.others = append(t.others, nil)
	}
	t.others = append(t.others, slices.Clone(values))
	t.values += 24
	for _, v := range values {
		t.values += fields.Bytes(v)
	}
}

// find returns the position of a record that the text holds.
func (t *Text) find(number uint64) (at uint32, err error) {
	i, ok := int(number-t.first), number-t.first < uint64(len(t.records))
	if t.numbers != nil {
		i, ok = slices.BinarySearch(t.numbers, number)
	}
	if !ok {
		return 0, fmt.Errorf("find record %d in the text of a block from record %d on: it holds %d records of %d",
			number, t.first, len(t.records), t.count)
	}
	return uint32(i), nil
}

// record returns the record at a position. Its text is in a slab or in buf; its tokens are appended to scratch. The
// next call may change both. store is that of the text.
func (t *Text) record(at uint32, store Store, buf *[]byte, scratch []uint32) (sources.Record, error) {
	ref := t.records[at]
	r := sources.Record{Number: t.first + uint64(at), Offset: ref.offset, Err: t.errs[at]}
	if t.numbers != nil {
		r.Number = t.numbers[at]
	}
	if t.others != nil {
		r.Others = t.others[at]
	}
	if r.Err != nil {
		return r, nil
	}
	bytes, err := t.bytes(ref, store.File, buf)
	if err != nil {
		return r, err
	}
	if !t.tokens && ref.madeOf == 0 {
		r.Text = bytes
		return r, nil
	}
	if ref.madeOf > 0 {
		r.Made, r.MadeOf, r.TooLong = true, int64(ref.madeOf)-1, t.tooLong[at]
	}
	for ; len(bytes) > 0; bytes = bytes[4:] {
		scratch = append(scratch, binary.LittleEndian.Uint32(bytes))
	}
	r.Tokens = scratch
	return r, nil
}

// bytes returns the bytes of a record. Those that are not together in memory are copied into buf, which grows; a large
// record has memory of its own.
func (t *Text) bytes(ref rawRecord, file *File, buf *[]byte) ([]byte, error) {
	slab, off := int(ref.slab), ref.off
	if slab >= len(t.places) && ref.n > 0 && off+ref.n <= SlabBytes {
		return t.slabs[slab-len(t.places)][off : off+ref.n], nil
	}
	if ref.n > SlabBytes {
		buf = new([]byte)
	}
	*buf = slices.Grow((*buf)[:0], max(int(ref.n), 1))[:ref.n]
	for rest := *buf; len(rest) > 0; slab, off = slab+1, 0 {
		n := min(len(rest), int(SlabBytes-off))
		if slab >= len(t.places) {
			copy(rest[:n], t.slabs[slab-len(t.places)][off:])
		} else if err := file.read(rest[:n], t.places[slab]+int64(off)); err != nil {
			return nil, err
		}
		rest = rest[n:]
	}
	return *buf, nil
}
