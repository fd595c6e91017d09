package parquet

import (
	"encoding/binary"
	"errors"
	"slices"
	"sort"

	"github.com/klauspost/compress/snappy"
	"github.com/parquet-go/parquet-go/format"
	"github.com/zeebo/xxh3"

	"millrace/sources"
)

// pieceBytes is the unpacked size of a piece. Snappy's encoders compress this number of bytes at a time, and no copy
// reaches back before their beginning.
const pieceBytes = 64 << 10

// piece is a part of an unpacked page that can be unpacked alone.
type piece struct {
	start  uint32 // in the unpacked page
	packed uint32 // in the packed page
	first  uint32 // the first string that begins in this piece or behind it
	at     uint32 // where that string begins, in the unpacked page
	sum    uint64 // hash of the packed bytes
}

// pieces are the parts of a page of plain strings. They give access to single strings, without unpacking the page.
// They are made from a page that was unpacked and checked as a whole, and they are immutable.
type pieces struct {
	off    int64 // of the packed bytes in the file
	packed uint32
	size   uint32 // unpacked
	count  uint32 // strings
	codec  format.CompressionCodec
	list   []piece
}

// newPieces returns the pieces of a page: its packed and its unpacked bytes, and the place of the first of n strings in
// the latter. It returns nil if unpacking them alone saves little.
func newPieces(codec format.CompressionCodec, off int64, packed, plain []byte, at, n int) *pieces {
	p := &pieces{off: off, packed: uint32(len(packed)), size: uint32(len(plain)), count: uint32(n), codec: codec}
	switch codec {
	case format.Snappy:
		p.list = snappyPieces(packed)
	case format.Uncompressed:
		for from := 0; from < len(plain); from += pieceBytes {
			p.list = append(p.list, piece{start: uint32(from), packed: uint32(from)})
		}
	}
	if len(p.list) < 4 || len(plain)/len(p.list) > 4*pieceBytes {
		return nil
	}
	next := 0
	for i := range n {
		for ; next < len(p.list) && int(p.list[next].start) <= at; next++ {
			p.list[next].first, p.list[next].at = uint32(i), uint32(at)
		}
		if at+lengthBytes > len(plain) {
			return nil
		}
		at += lengthBytes + int(binary.LittleEndian.Uint32(plain[at:]))
	}
	for ; next < len(p.list); next++ { // inside the last string, or behind it
		p.list[next].first, p.list[next].at = uint32(n), uint32(len(plain))
	}
	for i := range p.list {
		p.list[i].sum = xxh3.Hash(packed[p.list[i].packed:p.packedEnd(i)])
	}
	p.list = slices.Clip(p.list)
	return p
}

// packedEnd returns the end of a piece in the packed page.
func (p *pieces) packedEnd(i int) uint32 {
	if i+1 < len(p.list) {
		return p.list[i+1].packed
	}
	return p.packed
}

// end returns the end of a piece in the unpacked page.
func (p *pieces) end(i int) uint32 {
	if i+1 < len(p.list) {
		return p.list[i+1].start
	}
	return p.size
}

// snappyPieces returns the pieces of a block that snappy has decoded without an error. A piece begins at a multiple of
// pieceBytes at which an element begins, if no later copy reaches back behind it. See
// https://github.com/google/snappy/blob/main/format_description.txt.
func snappyPieces(b []byte) (list []piece) {
	size, s := binary.Uvarint(b)
	if s <= 0 || size > mostPage {
		return nil
	}
	for d := 0; s < len(b); {
		if d%pieceBytes == 0 {
			list = append(list, piece{start: uint32(d), packed: uint32(s)})
		}
		tag := b[s]
		if tag&3 == 0 {
			length := int(tag >> 2)
			width := max(length-59, 0)
			if s+1+width > len(b) {
				return nil
			}
			if width > 0 {
				length = int(littleEndian(b[s+1 : s+1+width]))
			}
			s += 2 + width + length
			d += 1 + length
			continue
		}
		length, back := 1+int(tag>>2), 0
		switch left := b[s+1:]; {
		case tag&3 == 1 && len(left) >= 1:
			length, back = 4+int(tag>>2)&7, int(tag>>5)<<8|int(left[0])
			s += 2
		case tag&3 == 2 && len(left) >= 2:
			back = int(binary.LittleEndian.Uint16(left))
			s += 3
		case tag&3 == 3 && len(left) >= 4:
			back = int(binary.LittleEndian.Uint32(left))
			s += 5
		default:
			return nil
		}
		for n := len(list); n > 1 && d-back < int(list[n-1].start); n = len(list) {
			list = list[:n-1]
		}
		d += length
	}
	return list
}

func littleEndian(b []byte) (v uint32) {
	for i, x := range b {
		v |= uint32(x) << (8 * i)
	}
	return v
}

// span returns the bytes of the file with the pieces of a string.
func (p *pieces) span(n uint32) sources.Range {
	first := p.pieceOf(n)
	last := first
	for last+1 < len(p.list) && p.list[last+1].first == n+1 && p.list[last+1].at > p.list[last+1].start {
		last++ // the string ends behind the beginning of this piece
	}
	return sources.Range{Start: p.off + int64(p.list[first].packed), End: p.off + int64(p.packedEnd(last))}
}

// pieceOf returns the piece in which a string begins.
func (p *pieces) pieceOf(n uint32) int {
	return sort.Search(len(p.list), func(i int) bool { return p.list[i].first > n }) - 1
}

// errPiece is the error of a piece whose bytes are not those of the page that was unpacked as a whole.
var errPiece = errors.New("its bytes changed since the page was first read")

// pieceReader unpacks single strings of pages. It is not safe for concurrent use.
type pieceReader struct {
	f      sources.File
	told   *announcement
	of     *pieces
	from   int    // the first piece in plain
	until  int    // the piece behind plain
	plain  []byte // unpacked
	packed []byte
}

// mostPrefix is the room for the length in front of a snappy block.
const mostPrefix = binary.MaxVarintLen32

// value returns one string of a page. Its memory is valid until the next call.
func (r *pieceReader) value(p *pieces, n uint32) ([]byte, error) {
	i := p.pieceOf(n)
	if r.of != p || i != r.from {
		r.of, r.from, r.until, r.plain = p, i, i, r.plain[:0]
	}
	at := p.list[i].at
	for k := p.list[i].first; ; k++ {
		b, err := r.bytes(at, lengthBytes)
		if err != nil {
			return nil, err
		}
		length := binary.LittleEndian.Uint32(b)
		at += lengthBytes
		if k == n {
			return r.bytes(at, length)
		}
		at += length
	}
}

// bytes returns bytes of the unpacked page from the first piece on.
func (r *pieceReader) bytes(at, n uint32) ([]byte, error) {
	lo := r.of.list[r.from].start
	if at < lo || uint64(at)+uint64(n) > uint64(r.of.size) {
		return nil, errPiece
	}
	for uint64(lo)+uint64(len(r.plain)) < uint64(at)+uint64(n) {
		if err := r.unpack(r.until); err != nil {
			r.of = nil
			return nil, err
		}
		r.until++
	}
	return r.plain[at-lo : at-lo+n : at-lo+n], nil
}

// unpack appends a piece to plain.
func (r *pieceReader) unpack(i int) error {
	p := r.of
	from, size := p.list[i].packed, int(p.end(i)-p.list[i].start)
	r.packed = resize(r.packed, mostPrefix+int(p.packedEnd(i)-from))
	b := r.packed[mostPrefix:]
	at := sources.Range{Start: p.off + int64(from), End: p.off + int64(from) + int64(len(b))}
	defer r.told.alone(at)()
	if err := sources.ReadFull(r.f, b, at.Start); err != nil {
		return err
	}
	if xxh3.Hash(b) != p.list[i].sum {
		return errPiece
	}
	was := len(r.plain)
	if p.codec == format.Uncompressed {
		r.plain = append(r.plain, b...)
		return nil
	}
	var header [mostPrefix]byte
	n := binary.PutUvarint(header[:], uint64(size))
	copy(r.packed[mostPrefix-n:], header[:n])
	r.plain = slices.Grow(r.plain, size)[:was+size]
	if _, err := snappy.Decode(r.plain[was:], r.packed[mostPrefix-n:]); err != nil {
		return errPiece
	}
	return nil
}
