package decode

import (
	"encoding/binary"
	"slices"

	"millrace/sources"
	"millrace/sources/fields"
)

// longRecord is the size from which on a record gets a slab of its own. So at most a quarter of a slab stays empty.
const longRecord = SlabBytes / 4

// Text holds the records of one block in file order: their text, or their tokens as little-endian bytes.
type Text struct {
	first   uint64 // record
	raw     uint64 // uncompressed bytes of the file
	records []rawRecord
	errs    map[uint32]error // by position: records to be quarantined
	tooLong map[uint32]bool  // by position: Record.TooLong, of documents that were made before
	others  [][]any          // of each record, if the source asks for any
	values  int64            // estimated bytes of others
	slabs   []slab
	held    int  // capacity of the slabs in memory
	filling int  // index of the slab that short records fill
	tokens  bool // the format is one of tokens
	last    bool // the shard ends with it
}

// rawRecord is the place of a record's bytes in the slabs.
type rawRecord struct {
	offset int64 // in the file
	off    uint32
	n      uint32
	slab   uint32
	madeOf uint32 // 1 + the bytes of the text of a record that was made before; 0: of the file
}

// Records returns the number of records.
func (t *Text) Records() uint64 { return uint64(len(t.records)) }

// IsLast reports whether the shard ends with the block.
func (t *Text) IsLast() bool { return t.last }

// Raw returns the uncompressed bytes of the block in its file.
func (t *Text) Raw() uint64 { return t.raw }

// Recycle gives back the room in a store of a text that is not used any more.
func (t *Text) Recycle(store Store) {
	for _, b := range t.slabs {
		store.recycle(b)
	}
	t.slabs = nil
}

// Size returns the bytes that the text takes in memory.
func (t *Text) Size() int64 { return int64(t.held) + 24*int64(cap(t.records)) + t.values }

// IsInFile reports whether a part of the text is in the store's file.
func (t *Text) IsInFile() bool {
	return slices.ContainsFunc(t.slabs, func(b slab) bool { return b.bytes == nil })
}

// add copies one record.
func (t *Text) add(r *sources.Record, store Store) {
	t.raw += uint64(r.Raw)
	t.keepOthers(r.Others)
	if r.Err != nil {
		t.errs = with(t.errs, uint32(len(t.records)), r.Err)
		t.records = append(t.records, rawRecord{offset: r.Offset})
		return
	}
	n := len(r.Text) + 4*len(r.Tokens)
	i := t.slabFor(n, store)
	at := t.slabs[i].bytes
	ref := rawRecord{offset: r.Offset, slab: uint32(i), off: uint32(len(at)), n: uint32(n)}
	if r.Made {
		ref.madeOf = uint32(r.MadeOf) + 1
	}
	if r.TooLong {
		t.tooLong = with(t.tooLong, uint32(len(t.records)), true)
	}
	t.records = append(t.records, ref)
	at = append(at, r.Text...)
	for _, token := range r.Tokens {
		at = binary.LittleEndian.AppendUint32(at, token)
	}
	t.slabs[i].bytes = at
	if t.held > heldText {
		t.putFull(store)
	}
}

// slabFor returns the index of a slab in memory with room for n bytes.
func (t *Text) slabFor(n int, store Store) int {
	if t.filling < len(t.slabs) && len(t.slabs[t.filling].bytes)+n <= cap(t.slabs[t.filling].bytes) {
		return t.filling
	}
	if n > longRecord { // shorter records go on filling the slab before
		return t.push(make([]byte, 0, n))
	}
	t.filling = t.push(store.Slabs.take())
	return t.filling
}

// push adds an empty slab and returns its index.
func (t *Text) push(bytes []byte) int {
	t.held += cap(bytes)
	t.slabs = append(t.slabs, slab{bytes: bytes})
	return len(t.slabs) - 1
}

// putFull moves all slabs to the file but the one that short records fill.
func (t *Text) putFull(store Store) {
	for i := range t.slabs {
		if i != t.filling || cap(t.slabs[i].bytes) > SlabBytes {
			t.held -= store.put(&t.slabs[i])
		}
	}
}

// end ends the filling of a text.
func (t *Text) end(store Store) {
	if t.filling < len(t.slabs) && t.IsInFile() {
		t.held -= store.put(&t.slabs[t.filling])
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

// size returns the bytes of a record's text or tokens.
func (t *Text) size(number uint64) int64 { return int64(t.records[number-t.first].n) }

// record returns one record. Its text lies in a slab or in buf; its tokens are appended to scratch. The next call may
// change both. store is that of the text.
func (t *Text) record(number uint64, store Store, buf *[]byte, scratch []uint32) (sources.Record, error) {
	at := uint32(number - t.first)
	ref := t.records[at]
	r := sources.Record{Number: number, Offset: ref.offset, Err: t.errs[at]}
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

// bytes returns the bytes of a record. Those in the file are read into buf, which grows; a large record has memory of
// its own.
func (t *Text) bytes(ref rawRecord, file *File, buf *[]byte) ([]byte, error) {
	b := &t.slabs[ref.slab]
	if b.bytes != nil {
		return b.bytes[ref.off : ref.off+ref.n], nil
	}
	if ref.n > SlabBytes {
		buf = new([]byte)
	}
	*buf = slices.Grow((*buf)[:0], max(int(ref.n), 1))[:ref.n]
	return *buf, file.read(*buf, b.at+int64(ref.off))
}
