package decode

import (
	"encoding/binary"
	"slices"

	"millrace/sources"
	"millrace/sources/fields"
)

// SlabBytes is the size of a slab of block text. It is small, because the text of a small block takes a whole slab, and
// a process with many sources holds many small blocks.
const SlabBytes = 128 << 10

// longRecord is the size from which on a record gets a slab of its own. So at most a quarter of a slab stays empty.
const longRecord = SlabBytes / 4

// Slabs keeps slabs for reuse; its capacity bounds them, and no budget counts them. A nil Slabs keeps none. It is safe
// for concurrent use.
type Slabs chan []byte

func (s Slabs) take() []byte {
	select {
	case slab := <-s:
		return slab
	default:
		return make([]byte, 0, SlabBytes)
	}
}

// Recycle takes the slabs of a text that is not used any more.
func (s Slabs) Recycle(t *Text) {
	for _, slab := range t.slabs {
		if cap(slab) != SlabBytes {
			continue
		}
		select {
		case s <- slab[:0]:
		default:
			return
		}
	}
}

// Text holds the records of one block in file order: their text, or their tokens as little-endian bytes.
type Text struct {
	first   uint64 // record
	raw     uint64 // uncompressed bytes of the file
	records []rawRecord
	errs    map[uint32]error // by position: records to be quarantined
	tooLong map[uint32]bool  // by position: Record.TooLong, of documents that were made before
	others  [][]any          // of each record, if the source asks for any
	values  int64            // estimated bytes of others
	slabs   [][]byte
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

// Size returns the bytes that the text takes in memory.
func (t *Text) Size() (n int64) {
	for _, s := range t.slabs {
		n += int64(cap(s))
	}
	return n + 24*int64(cap(t.records)) + t.values
}

// add copies one record.
func (t *Text) add(r *sources.Record, spare Slabs) {
	t.raw += uint64(r.Raw)
	t.keepOthers(r.Others)
	if r.Err != nil {
		t.errs = with(t.errs, uint32(len(t.records)), r.Err)
		t.records = append(t.records, rawRecord{offset: r.Offset})
		return
	}
	n := len(r.Text) + 4*len(r.Tokens)
	slab := t.slabFor(n, spare)
	at := t.slabs[slab]
	ref := rawRecord{offset: r.Offset, slab: uint32(slab), off: uint32(len(at)), n: uint32(n)}
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
	t.slabs[slab] = at
}

// slabFor returns the index of a slab with room for n bytes.
func (t *Text) slabFor(n int, spare Slabs) int {
	if t.filling < len(t.slabs) && len(t.slabs[t.filling])+n <= cap(t.slabs[t.filling]) {
		return t.filling
	}
	if n > longRecord { // shorter records go on filling the slab before
		t.slabs = append(t.slabs, make([]byte, 0, n))
		return len(t.slabs) - 1
	}
	t.filling = len(t.slabs)
	t.slabs = append(t.slabs, spare.take())
	return t.filling
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

// record returns one record. Its text lies in a slab; its tokens are appended to scratch.
func (t *Text) record(number uint64, scratch []uint32) sources.Record {
	at := uint32(number - t.first)
	ref := t.records[at]
	r := sources.Record{Number: number, Offset: ref.offset, Err: t.errs[at]}
	if t.others != nil {
		r.Others = t.others[at]
	}
	if r.Err != nil {
		return r
	}
	var bytes []byte
	if len(t.slabs) > 0 {
		bytes = t.slabs[ref.slab][ref.off : ref.off+ref.n]
	}
	if !t.tokens && ref.madeOf == 0 {
		r.Text = bytes
		return r
	}
	if ref.madeOf > 0 {
		r.Made, r.MadeOf, r.TooLong = true, int64(ref.madeOf)-1, t.tooLong[at]
	}
	for ; len(bytes) > 0; bytes = bytes[4:] {
		scratch = append(scratch, binary.LittleEndian.Uint32(bytes))
	}
	r.Tokens = scratch
	return r
}
