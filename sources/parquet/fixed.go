package parquet

import (
	"encoding/binary"

	"github.com/parquet-go/parquet-go/format"

	"millrace"
)

// fixedDecoder decodes numbers and booleans.
type fixedDecoder struct {
	bytes []byte // values that a page does not hold as they are
	bits  []uint32
	ints  []int32
	longs []int64
}

// plain appends n values that lie one after the other.
func (d *fixedDecoder) plain(out [][]byte, col *column, b []byte, n int) ([][]byte, error) {
	if col.kind != format.Boolean {
		return cut(out, b, col.width(), n)
	}
	if len(b) < (n+7)/8 {
		return nil, errValues
	}
	d.bytes = resize(d.bytes, n)
	for i := range n {
		d.bytes[i] = b[i/8] >> (i % 8) & 1
	}
	return cut(out, d.bytes, 1, n)
}

func cut(out [][]byte, b []byte, width, n int) ([][]byte, error) {
	if len(b)/width < n {
		return nil, errValues
	}
	for i := range n {
		out = append(out, b[i*width:(i+1)*width:(i+1)*width])
	}
	return out, nil
}

// decode appends n values in an encoding that is neither plain nor a dictionary.
func (d *fixedDecoder) decode(out [][]byte, col *column, enc format.Encoding, b []byte, n int) ([][]byte, error) {
	kind, width := col.kind, col.width()
	d.bytes = resize(d.bytes, n*width)
	switch {
	case enc == format.RLE && kind == format.Boolean:
		if len(b) < 4 {
			return nil, errValues
		}
		d.bits = resize(d.bits, n)
		r := runs{b: b[4:], width: 1}
		if err := r.fill(d.bits); err != nil {
			return nil, err
		}
		for i, x := range d.bits {
			d.bytes[i] = byte(x)
		}
	case enc == format.DeltaBinaryPacked && kind == format.Int32:
		var err error
		if d.ints, _, err = deltas(b, n, d.ints[:0]); err != nil {
			return nil, err
		}
		for i, x := range d.ints {
			binary.LittleEndian.PutUint32(d.bytes[4*i:], uint32(x))
		}
	case enc == format.DeltaBinaryPacked && kind == format.Int64:
		var err error
		if d.longs, _, err = deltas(b, n, d.longs[:0]); err != nil {
			return nil, err
		}
		for i, x := range d.longs {
			binary.LittleEndian.PutUint64(d.bytes[8*i:], uint64(x))
		}
	case enc == format.ByteStreamSplit && width > 1:
		if len(b) < n*width {
			return nil, errValues
		}
		for i := range n {
			for j := range width {
				d.bytes[i*width+j] = b[j*n+i]
			}
		}
	default:
		return nil, millrace.Errorf(millrace.ErrInvalid, "encoding %v of %v", enc, kind)
	}
	return cut(out, d.bytes, width, n)
}
