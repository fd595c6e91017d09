package rows

import (
	"encoding/binary"
	"sort"

	"millrace"
	"millrace/sources"
)

// An index is
//
//	"MRjl", u32 version, u32 kind, u32 records of a page
//	u64 bytes of the file, u64 uncompressed bytes, u64 records, u64 points
//	points × (u64 byte of the file, u64 bytes there, u64 uncompressed byte)
//	pages × (u64 first uncompressed byte of its first record, u64 first byte of its deltas in the deltas)
//	deltas: for each further record of a page, the uvarint distance of its start from the one before
//
// All numbers are little-endian. An index takes about two bytes a record. It is used in its encoded form, mapped or
// not, so a page is the unit of lookup. The index of a file that only streams has only the count, without points and
// pages.
const (
	indexMagic   = "MRjl"
	indexVersion = 1
	indexHead    = 48
	indexPoint   = 24
	indexPage    = 16
	pageRecords  = 128
)

// index is the decoded head of a blob over its bytes.
type index struct {
	kind   kind
	plain  int64 // uncompressed bytes
	count  uint64
	points []byte
	pages  []byte
	deltas []byte
}

// indexBuilder collects record starts in file order.
type indexBuilder struct {
	count  uint64
	last   int64
	points []byte
	pages  []byte
	deltas []byte
}

func (b *indexBuilder) addRecord(start int64) {
	if b.count%pageRecords == 0 {
		b.pages = binary.LittleEndian.AppendUint64(b.pages, uint64(start))
		b.pages = binary.LittleEndian.AppendUint64(b.pages, uint64(len(b.deltas)))
	} else {
		b.deltas = binary.AppendUvarint(b.deltas, uint64(start-b.last))
	}
	b.last = start
	b.count++
}

func (b *indexBuilder) addPoint(p point) {
	for _, v := range [3]int64{p.packed, p.size, p.at} {
		b.points = binary.LittleEndian.AppendUint64(b.points, uint64(v))
	}
}

func (b *indexBuilder) encode(k kind, file, plain int64) []byte {
	if !k.seekable() {
		b.points, b.pages, b.deltas = nil, nil, nil
	}
	out := make([]byte, 0, indexHead+len(b.points)+len(b.pages)+len(b.deltas))
	out = append(out, indexMagic...)
	for _, v := range [3]uint32{indexVersion, uint32(k), pageRecords} {
		out = binary.LittleEndian.AppendUint32(out, v)
	}
	for _, v := range [4]uint64{uint64(file), uint64(plain), b.count, uint64(len(b.points) / indexPoint)} {
		out = binary.LittleEndian.AppendUint64(out, v)
	}
	return append(append(append(out, b.points...), b.pages...), b.deltas...)
}

// openIndex checks that a blob can belong to f. The error of an index that does not fit is ErrDamaged, so that it is
// made again. Each lookup checks the entries that it finds, so a damaged blob does no harm.
func openIndex(f sources.File, blob []byte) (*index, error) {
	unfit := func(what string) (*index, error) {
		return nil, millrace.Errorf(millrace.ErrDamaged, "open index of %s: %s", f.Name(), what)
	}
	le := binary.LittleEndian
	if len(blob) < indexHead || string(blob[:4]) != indexMagic {
		return unfit("not an index of JSON lines")
	}
	if le.Uint32(blob[4:]) != indexVersion || le.Uint32(blob[12:]) != pageRecords {
		return unfit("another version")
	}
	if le.Uint64(blob[16:]) != uint64(f.Size()) {
		return unfit("made for a file of another size")
	}
	x := &index{kind: kind(le.Uint32(blob[8:])), plain: int64(le.Uint64(blob[24:])), count: le.Uint64(blob[32:])}
	points := le.Uint64(blob[40:])
	rest := blob[indexHead:]
	if x.kind > lastKind || x.plain < 0 || points > uint64(len(rest))/indexPoint {
		return unfit("it does not fit together")
	}
	x.points, rest = rest[:points*indexPoint], rest[points*indexPoint:]
	if x.kind.seekable() {
		pages := x.count / pageRecords
		if x.count%pageRecords != 0 {
			pages++
		}
		if pages > uint64(len(rest))/indexPage {
			return unfit("it does not fit together")
		}
		x.pages, x.deltas = rest[:pages*indexPage], rest[pages*indexPage:]
	}
	return x, nil
}

// extent returns the start of a record's line and a bound of its end: the start of the next record's line.
func (x *index) extent(n uint64) (start, end int64, ok bool) {
	if start, ok = x.startOf(n); !ok {
		return 0, 0, false
	}
	end = x.plain
	if n+1 < x.count {
		if end, ok = x.startOf(n + 1); !ok {
			return 0, 0, false
		}
	}
	return start, end, start < end && end <= x.plain
}

func (x *index) startOf(n uint64) (int64, bool) {
	page := n / pageRecords * indexPage
	if n >= x.count || page+indexPage > uint64(len(x.pages)) {
		return 0, false
	}
	at := int64(binary.LittleEndian.Uint64(x.pages[page:]))
	from := binary.LittleEndian.Uint64(x.pages[page+8:])
	if at < 0 || from > uint64(len(x.deltas)) {
		return 0, false
	}
	deltas := x.deltas[from:]
	for range n % pageRecords {
		d, size := binary.Uvarint(deltas)
		if size <= 0 || at > x.plain || d > uint64(x.plain-at) {
			return 0, false
		}
		at += int64(d)
		deltas = deltas[size:]
	}
	return at, at < x.plain
}

func (x *index) countPoints() int { return len(x.points) / indexPoint }

func (x *index) pointAt(i int) point {
	b := x.points[i*indexPoint:]
	return point{
		packed: int64(binary.LittleEndian.Uint64(b)),
		size:   int64(binary.LittleEndian.Uint64(b[8:])),
		at:     int64(binary.LittleEndian.Uint64(b[16:])),
	}
}

// holding returns the frame that holds an uncompressed byte, -1 if none does.
func (x *index) holding(off int64) int {
	return sort.Search(x.countPoints(), func(i int) bool { return x.pointAt(i).at > off }) - 1
}

// pointsOf returns all restart points. Each is inside the file.
func (x *index) pointsOf(f sources.File) ([]point, error) {
	points := make([]point, x.countPoints())
	var packed, at int64
	for i := range points {
		p := x.pointAt(i)
		if p.packed < packed || p.size < 0 || p.size > mostPacked || p.packed > f.Size()-p.size || p.at < at ||
			p.at > x.plain {
			return nil, millrace.Errorf(millrace.ErrDamaged, "open index of %s: restart point %d is out of place",
				f.Name(), i)
		}
		packed, at = p.packed+p.size, p.at
		points[i] = p
	}
	return points, nil
}

// mostPacked is the most bytes of a frame in the file: its blocks and a header.
const mostPacked = 2*frameBytes + 64
