package extents

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"millrace"
	"millrace/sources"
)

// Offsets is a table of 32-bit offsets: record n is between offsets n and n+1.
type Offsets struct {
	bytes []byte // little-endian
}

var _ Table = Offsets{}

// Count implements Table.
func (o Offsets) Count() uint64 { return uint64(len(o.bytes)/4) - 1 }

// Extent implements Table.
func (o Offsets) Extent(n uint64) (start, end int64) {
	b := o.bytes[4*n : 4*n+8]
	return int64(binary.LittleEndian.Uint32(b)), int64(binary.LittleEndian.Uint32(b[4:]))
}

// Memory implements Table.
func (o Offsets) Memory() int64 { return int64(len(o.bytes)) }

// tableRead is the size of one read of a table. Many tables fit into the first one.
const tableRead = 16 << 10

// ReadOffsets reads a table at byte `at` of f: a u32 number of records, and one u32 offset more. behind is the byte
// behind the table. The offsets ascend. The caller compares them with the place of the records.
func ReadOffsets(ctx context.Context, f sources.File, at int64) (o Offsets, behind int64, err error) {
	if f.Size()-at < 8 {
		return o, 0, Misfit(f, "it ends at byte %d, and its table of offsets begins at byte %d", f.Size(), at)
	}
	head := make([]byte, min(f.Size()-at, tableRead))
	if err := sources.ReadFull(f, head, at); err != nil {
		return o, 0, err
	}
	return readOffsets(ctx, f, int64(binary.LittleEndian.Uint32(head)), at+4, head[4:])
}

// ReadOffsetsOf reads a table without its number of records, which the caller knows. It is like ReadOffsets otherwise.
func ReadOffsetsOf(ctx context.Context, f sources.File, count, at int64) (o Offsets, behind int64, err error) {
	return readOffsets(ctx, f, count, at, nil)
}

func readOffsets(ctx context.Context, f sources.File, count, at int64, head []byte) (o Offsets, behind int64,
	err error) {
	if behind = at + 4*(count+1); behind > f.Size() {
		return o, 0, Misfit(f, "%d records have a table of offsets up to byte %d, and the file has %d", count, behind,
			f.Size())
	}
	o.bytes, err = readAscending(ctx, f, at, behind, head)
	return o, behind, err
}

// readAscending reads the offsets at byte at … end of f, of which head has the first ones. It checks each part before
// it takes memory for the next one, so a damaged count costs little.
func readAscending(ctx context.Context, f sources.File, at, end int64, head []byte) ([]byte, error) {
	if int64(len(head)) > end-at {
		head = head[:end-at]
	}
	out := append([]byte(nil), head[:len(head)/4*4]...)
	last, checked := uint32(0), 0
	for {
		var err error
		if last, err = (Offsets{out}).ascending(f, checked, last); err != nil {
			return nil, err
		}
		checked = len(out)
		left := end - at - int64(len(out))
		if left == 0 {
			return out, nil
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n := int(min(left, max(tableRead, int64(len(out)))))
		out = slices.Grow(out, n)[:len(out)+n]
		if err := sources.ReadFull(f, out[checked:], at+int64(checked)); err != nil {
			return nil, err
		}
	}
}

// ascending compares the offsets from byte `from` of the table on, behind the offset last. It returns the last one.
func (o Offsets) ascending(f sources.File, from int, last uint32) (uint32, error) {
	for at := from; at < len(o.bytes); at += 4 {
		next := le32(o.bytes[at:])
		if next < last {
			return 0, Misfit(f, "the offset of record %d is %d, and the one before is %d", at/4, next, last)
		}
		last = next
	}
	return last, nil
}

func le32(b []byte) uint32 { return binary.LittleEndian.Uint32(b) }

// Bounds returns the first byte of the first record and the byte behind the last one.
func (o Offsets) Bounds() (start, end int64) {
	first, last := binary.LittleEndian.Uint32(o.bytes), binary.LittleEndian.Uint32(o.bytes[len(o.bytes)-4:])
	return int64(first), int64(last)
}

// Misfit returns the error of a file whose parts contradict each other.
func Misfit(f sources.File, format string, args ...any) error {
	return millrace.Errorf(millrace.ErrDamaged, "open %s: %w", f.Name(), fmt.Errorf(format, args...))
}
