package ids

import (
	"encoding/binary"

	"millrace"
)

// A table is
//
//	"MRid", u32 version, u32 documents of a page, u32 bytes of an id
//	u64 bytes of the file, u64 first byte of the ids in it, u64 documents, u64 ids
//	pages × (u64 first id of its first document, u64 first byte of its lengths in the lengths)
//	lengths: the ids of each document as uvarint
//
// All numbers are little-endian. A table takes about two and a half bytes a document. It is used in its encoded form,
// mapped or not, so a page is the unit of lookup.
const (
	tableMagic   = "MRid"
	tableVersion = 1
	tableHead    = 48
	tablePage    = 16
	// pageDocuments bounds the lengths that are added to find a document's start.
	pageDocuments = 32
)

// Builder collects the lengths of documents in file order.
type Builder struct {
	pages, lengths []byte
	count, ids     uint64
}

// Add adds the next document.
func (b *Builder) Add(length uint64) {
	if b.count%pageDocuments == 0 {
		b.pages = binary.LittleEndian.AppendUint64(b.pages, b.ids)
		b.pages = binary.LittleEndian.AppendUint64(b.pages, uint64(len(b.lengths)))
	}
	b.lengths = binary.AppendUvarint(b.lengths, length)
	b.ids += length
	b.count++
}

// Layout is the place of the ids in a file.
type Layout struct {
	DType DType
	Size  int64 // of the file
	From  int64 // first byte of the ids
}

// Encode returns the table of the documents added, for [OpenTable].
func (b *Builder) Encode(at Layout) []byte {
	out := make([]byte, 0, tableHead+len(b.pages)+len(b.lengths))
	out = append(out, tableMagic...)
	for _, v := range [3]uint32{tableVersion, pageDocuments, uint32(at.DType.Size)} {
		out = binary.LittleEndian.AppendUint32(out, v)
	}
	for _, v := range [4]uint64{uint64(at.Size), uint64(at.From), b.count, b.ids} {
		out = binary.LittleEndian.AppendUint64(out, v)
	}
	return append(append(out, b.pages...), b.lengths...)
}

// Table returns the table of the documents added, in memory.
func (b *Builder) Table() *Table {
	return &Table{count: b.count, ids: b.ids, pages: b.pages, lengths: b.lengths}
}

// Table has the place of each document. It is immutable.
type Table struct {
	count, ids     uint64
	pages, lengths []byte
}

// OpenTable returns the table of an encoded one, whose memory it uses. The error of a table that does not fit the
// layout wraps ErrDamaged. Each lookup checks the entries that it finds, so a damaged table does no harm.
func OpenTable(name string, at Layout, blob []byte) (*Table, error) {
	unfit := func(what string) (*Table, error) {
		return nil, millrace.Errorf(millrace.ErrDamaged, "open index of %s: %s", name, what)
	}
	le := binary.LittleEndian
	switch {
	case len(blob) < tableHead || string(blob[:4]) != tableMagic:
		return unfit("not an index of documents of ids")
	case le.Uint32(blob[4:]) != tableVersion || le.Uint32(blob[8:]) != pageDocuments:
		return unfit("another version")
	case le.Uint32(blob[12:]) != uint32(at.DType.Size) || le.Uint64(blob[24:]) != uint64(at.From):
		return unfit("made for ids of another type")
	case le.Uint64(blob[16:]) != uint64(at.Size):
		return unfit("made for a file of another size")
	}
	t := &Table{count: le.Uint64(blob[32:]), ids: le.Uint64(blob[40:])}
	rest := blob[tableHead:]
	pages := t.count / pageDocuments
	if t.count%pageDocuments != 0 {
		pages++
	}
	if pages > uint64(len(rest))/tablePage || t.ids > uint64(at.Size-at.From)/uint64(at.DType.Size) {
		return unfit("it does not fit together")
	}
	t.pages, t.lengths = rest[:pages*tablePage], rest[pages*tablePage:]
	return t, nil
}

// Count returns the number of documents.
func (t *Table) Count() uint64 { return t.count }

// Memory returns the bytes of the table.
func (t *Table) Memory() int64 { return int64(len(t.pages) + len(t.lengths)) }

// Span returns a document's first id and its length. ok is false if there is no such document, or no such place in the
// file.
func (t *Table) Span(n uint64) (start, length uint64, ok bool) {
	if n >= t.count {
		return 0, 0, false
	}
	page := t.pages[n/pageDocuments*tablePage:]
	start = binary.LittleEndian.Uint64(page)
	from := binary.LittleEndian.Uint64(page[8:])
	if start > t.ids || from > uint64(len(t.lengths)) {
		return 0, 0, false
	}
	lengths := t.lengths[from:]
	for i := range n%pageDocuments + 1 {
		v, size := binary.Uvarint(lengths)
		if size <= 0 || v > t.ids-start {
			return 0, 0, false
		}
		if i == n%pageDocuments {
			return start, v, true
		}
		start += v
		lengths = lengths[size:]
	}
	return 0, 0, false
}

// WidthOf returns the bytes of an id by an encoded table, 0 if it is none.
func WidthOf(blob []byte) int {
	if len(blob) < tableHead {
		return 0
	}
	return int(binary.LittleEndian.Uint32(blob[12:]))
}
