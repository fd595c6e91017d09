package cache

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/zeebo/xxh3"

	"millrace"
	"millrace/sources"
)

// An entry is a head, groups of records, the list of the groups' tables, and a tail. docs/bytes-on-disk.md has the
// fields.
const (
	headMagic  = "MRTOKEN1"
	tailMagic  = "MRTOKEND"
	headSize   = 8 + 16 + 8
	tailSize   = 8 + 8 + 8 + 8 + 8
	groupSize  = 256 // records of a group
	slotSize   = 16  // bytes of a record in its group's table
	mostRecord = 1 << 32
	fetchBytes = 256 << 10 // of one read if records follow each other
)

// saltOf returns the seed of an entry's checksums, so that bytes of another entry are wrong bytes.
func saltOf(key millrace.Digest) uint64 { return xxh3.Hash(key[:]) }

func appendHead(dst []byte, key millrace.Digest) []byte {
	dst = append(append(dst, headMagic...), key[:]...)
	return binary.LittleEndian.AppendUint64(dst, xxh3.HashSeed(dst, saltOf(key)))
}

// appendTail appends the list of tables and the tail. The list begins at byte `at`.
func appendTail(dst []byte, key millrace.Digest, tables []uint64, at, records uint64) []byte {
	from := len(dst)
	for _, t := range tables {
		dst = binary.LittleEndian.AppendUint64(dst, t)
	}
	list := xxh3.HashSeed(dst[from:], saltOf(key))
	from = len(dst)
	for _, v := range []uint64{records, at, list} {
		dst = binary.LittleEndian.AppendUint64(dst, v)
	}
	dst = binary.LittleEndian.AppendUint64(dst, xxh3.HashSeed(dst[from:], saltOf(key)))
	return append(dst, tailMagic...)
}

// entry is an open entry. It is immutable, so it may be used concurrently. In memory it has eight bytes for each 256
// records.
type entry struct {
	file   File
	size   int64
	salt   uint64
	count  uint64
	tables []uint64 // offset of each group's table
}

// openEntry checks the ends of a file.
func openEntry(f File, key millrace.Digest) (*entry, error) {
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	e := &entry{file: f, size: size, salt: saltOf(key)}
	if e.size < headSize+tailSize {
		return nil, fmt.Errorf("%w: it has %d bytes", errDamaged, e.size)
	}
	head, err := e.read(nil, 0, headSize)
	if err != nil {
		return nil, err
	}
	if string(head) != string(appendHead(nil, key)) {
		return nil, fmt.Errorf("%w: its head", errDamaged)
	}
	tail, err := e.read(nil, uint64(e.size-tailSize), tailSize)
	if err != nil {
		return nil, err
	}
	e.count = binary.LittleEndian.Uint64(tail)
	at, list := binary.LittleEndian.Uint64(tail[8:]), binary.LittleEndian.Uint64(tail[16:])
	if binary.LittleEndian.Uint64(tail[24:]) != xxh3.HashSeed(tail[:24], e.salt) || string(tail[32:]) != tailMagic {
		return nil, fmt.Errorf("%w: its tail", errDamaged)
	}
	groups := (e.count + groupSize - 1) / groupSize
	if e.count > 1<<48 || at+8*groups != uint64(e.size-tailSize) {
		return nil, fmt.Errorf("%w: its list of groups", errDamaged)
	}
	b, err := e.read(nil, at, 8*groups)
	if err != nil {
		return nil, err
	}
	if xxh3.HashSeed(b, e.salt) != list {
		return nil, fmt.Errorf("%w: its list of groups", errDamaged)
	}
	e.tables = make([]uint64, groups)
	for i := range e.tables {
		e.tables[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return e, nil
}

// read reads n bytes at an offset into memory that it may take from buf.
func (e *entry) read(buf []byte, off, n uint64) ([]byte, error) {
	if off > uint64(e.size) || n > uint64(e.size)-off || n > mostRecord {
		return nil, errDamaged
	}
	buf = slices.Grow(buf[:0], int(n))[:n]
	got, err := e.file.ReadAt(buf, int64(off))
	if uint64(got) == n {
		return buf, nil
	}
	if errors.Is(err, io.EOF) {
		err = errDamaged
	}
	return nil, err
}

// start returns the first byte of a group.
func (e *entry) start(group uint64) uint64 {
	if group == 0 {
		return headSize
	}
	return e.tables[group-1] + groupSize*slotSize
}

// cursor reads records of an entry. It is not safe for concurrent use.
type cursor struct {
	*entry
	buf []byte // a stretch of the file
	lo  uint64 // its first byte
	decoded

	slots []byte // of the table, from record first of the group on
	group uint64
	first uint64
}

func newCursor(e *entry) *cursor { return &cursor{entry: e} }

// slot returns the place and the checksum of a record. run is the number of records from it on that the caller reads.
func (c *cursor) slot(n, run uint64) (from, to, sum uint64, err error) {
	group, at := n/groupSize, n%groupSize
	have := uint64(len(c.slots)) / slotSize
	if c.slots == nil || c.group != group || at < c.first || at >= c.first+have || at == c.first && at > 0 {
		lo, hi := max(at, 1)-1, min(at+run, groupSize, c.count-group*groupSize)
		if c.slots, err = c.read(c.slots, c.tables[group]+lo*slotSize, (hi-lo)*slotSize); err != nil {
			c.slots = nil
			return 0, 0, 0, err
		}
		c.group, c.first = group, lo
	}
	from = c.start(group)
	if at > 0 {
		from = binary.LittleEndian.Uint64(c.slots[(at-1-c.first)*slotSize:])
	}
	own := c.slots[(at-c.first)*slotSize:]
	return from, binary.LittleEndian.Uint64(own), binary.LittleEndian.Uint64(own[8:]), nil
}

// record returns record n. It aliases the cursor's memory, up to the next call. run is the number of consecutive
// records from n on that the caller reads.
func (c *cursor) record(n, run uint64) (sources.Record, error) {
	from, to, sum, err := c.slot(n, run)
	if err != nil {
		return sources.Record{}, err
	}
	if to < from || to > c.tables[n/groupSize] {
		return sources.Record{}, errDamaged
	}
	if from < c.lo || to > c.lo+uint64(len(c.buf)) {
		want := to - from
		if run > 1 { // the read covers the records that follow in the group
			want = max(want, min(fetchBytes, run*max(want, 256), c.tables[n/groupSize]-from))
		}
		if c.buf, err = c.read(c.buf, from, want); err != nil {
			c.buf = nil
			return sources.Record{}, err
		}
		c.lo = from
	}
	b := c.buf[from-c.lo : to-c.lo]
	if checksum(c.salt, n, b) != sum {
		return sources.Record{}, errDamaged
	}
	return c.decoded.record(n, b)
}
