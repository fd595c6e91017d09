package arrayrecord

import (
	"encoding/binary"
	"sort"

	"millrace"
	"millrace/sources"
)

// An index is
//
//	"MRar", u32 version, u32 chunks of a page, u32 0
//	u64 bytes of the file, u64 records, u64 chunks, u64 unpacked bytes of all chunks
//	pages × (u64 first record of its first chunk, u64 byte of that chunk in the file, u64 first byte in the deltas)
//	deltas: for each chunk, the uvarint distance from the one before in its page, and its records as uvarint
//
// All numbers are little-endian. It is used in its encoded form, mapped or not, so a page is the unit of lookup.
const (
	tableMagic   = "MRar"
	tableVersion = 1
	tableHead    = 48
	tablePage    = 24
	pageChunks   = 64
)

// table has the places of the chunks.
type table struct {
	records, chunks, unpacked uint64
	pages, deltas             []byte
	last                      int64 // place of the chunk that was added last
}

// place is that of a chunk.
type place struct {
	offset         int64 // in the file
	first, records uint64
}

func (t *table) add(offset int64, records, unpacked uint64) {
	le := binary.LittleEndian
	if t.chunks%pageChunks == 0 {
		for _, v := range [3]uint64{t.records, uint64(offset), uint64(len(t.deltas))} {
			t.pages = le.AppendUint64(t.pages, v)
		}
		t.last = offset
	}
	t.deltas = binary.AppendUvarint(t.deltas, uint64(offset-t.last))
	t.deltas = binary.AppendUvarint(t.deltas, records)
	t.last = offset
	t.chunks++
	t.records += records
	t.unpacked += unpacked
}

func (t *table) encode(file int64) []byte {
	out := append(make([]byte, 0, tableHead+len(t.pages)+len(t.deltas)), tableMagic...)
	for _, v := range [3]uint32{tableVersion, pageChunks, 0} {
		out = binary.LittleEndian.AppendUint32(out, v)
	}
	for _, v := range [4]uint64{uint64(file), t.records, t.chunks, t.unpacked} {
		out = binary.LittleEndian.AppendUint64(out, v)
	}
	return append(append(out, t.pages...), t.deltas...)
}

// openTable checks that a blob can belong to f. Each lookup checks the entries that it finds, so a damaged blob does no
// harm.
func openTable(f sources.File, blob []byte) (*table, error) {
	le := binary.LittleEndian
	wrong := func(what string) (*table, error) {
		return nil, millrace.Errorf(millrace.ErrDamaged, "open index of %s: %s", f.Name(), what)
	}
	switch {
	case len(blob) < tableHead || string(blob[:4]) != tableMagic:
		return wrong("not an index of ArrayRecord")
	case le.Uint32(blob[4:]) != tableVersion || le.Uint32(blob[8:]) != pageChunks:
		return wrong("another version")
	case le.Uint64(blob[16:]) != uint64(f.Size()):
		return wrong("made for a file of another size")
	}
	t := &table{records: le.Uint64(blob[24:]), chunks: le.Uint64(blob[32:]), unpacked: le.Uint64(blob[40:])}
	rest := blob[tableHead:]
	pages := t.chunks / pageChunks
	if t.chunks%pageChunks != 0 {
		pages++
	}
	if pages > uint64(len(rest))/tablePage {
		return wrong("it does not fit together")
	}
	t.pages, t.deltas = rest[:pages*tablePage], rest[pages*tablePage:]
	return t, nil
}

// holding returns the place of the chunk that holds a record.
func (t *table) holding(record uint64) (p place, ok bool) {
	le := binary.LittleEndian
	pages := len(t.pages) / tablePage
	i := sort.Search(pages, func(i int) bool { return le.Uint64(t.pages[i*tablePage:]) > record }) - 1
	if i < 0 || record >= t.records {
		return place{}, false
	}
	page := t.pages[i*tablePage:]
	p.first, p.offset = le.Uint64(page), int64(le.Uint64(page[8:]))
	from := le.Uint64(page[16:])
	if from > uint64(len(t.deltas)) {
		return place{}, false
	}
	deltas := t.deltas[from:]
	for range pageChunks {
		distance, n := binary.Uvarint(deltas)
		records, m := binary.Uvarint(deltas[max(n, 0):])
		if n <= 0 || m <= 0 || records > t.records-p.first || distance > 1<<62 || p.offset < 0 {
			return place{}, false
		}
		p.offset += int64(distance)
		p.records = records
		if record < p.first+records {
			return p, true
		}
		p.first += records
		deltas = deltas[n+m:]
	}
	return place{}, false
}
