package parquet

import (
	"encoding/binary"
	"math"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go/format"

	"millrace"
)

// width returns the bytes of a value of the column: 0 where each has its own, -1 where values are of no use here.
func (c *column) width() int {
	switch c.kind {
	case format.ByteArray:
		return 0
	case format.Boolean:
		return 1 // once it is decoded
	case format.Int32, format.Float:
		return 4
	case format.Int64, format.Double:
		return 8
	}
	return -1
}

// value returns what a filter sees of a value: whole numbers as they are stored, without regard to a logical type.
func (c *column) value(v []byte) (any, error) {
	if v == nil {
		return nil, nil
	}
	switch c.kind {
	case format.Boolean:
		return v[0] != 0, nil
	case format.Int32:
		return int(int32(binary.LittleEndian.Uint32(v))), nil
	case format.Int64:
		return int(binary.LittleEndian.Uint64(v)), nil
	case format.Float:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(v))), nil
	case format.Double:
		return math.Float64frombits(binary.LittleEndian.Uint64(v)), nil
	}
	if !utf8.Valid(v) {
		return nil, millrace.Errorf(millrace.ErrBadSample, "invalid UTF-8 in column %v", c.path)
	}
	return string(v), nil
}

// plain cuts values of the column that lie one after the other.
func (d *decoder) plain(out [][]byte, b []byte, n int) ([][]byte, error) {
	width := d.column.width()
	switch {
	case d.column.kind == format.Boolean:
		if len(b) < (n+7)/8 {
			return nil, errValues
		}
		d.fixed = resize(d.fixed, n)
		for i := range n {
			d.fixed[i] = b[i/8] >> (i % 8) & 1
		}
		return cut(out, d.fixed, 1, n)
	case width > 0:
		return cut(out, b, width, n)
	}
	return plainValues(out, b, n)
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

// fixedValues decodes the encodings of numbers and booleans beside plain and dictionaries.
func (d *decoder) fixedValues(out [][]byte, enc format.Encoding, b []byte, n int) ([][]byte, error) {
	kind, width := d.column.kind, d.column.width()
	d.fixed = resize(d.fixed, n*width)
	switch {
	case enc == format.RLE && kind == format.Boolean:
		if len(b) < 4 {
			return nil, errValues
		}
		if cap(d.indices) < n {
			d.indices = make([]uint32, n)
		}
		d.indices = d.indices[:n]
		r := runs{b: b[4:], width: 1}
		if err := r.fill(d.indices); err != nil {
			return nil, err
		}
		for i, x := range d.indices {
			d.fixed[i] = byte(x)
		}
	case enc == format.DeltaBinaryPacked && kind == format.Int32:
		var err error
		if d.lengths, _, err = deltas(b, n, d.lengths[:0]); err != nil {
			return nil, err
		}
		for i, x := range d.lengths {
			binary.LittleEndian.PutUint32(d.fixed[4*i:], uint32(x))
		}
	case enc == format.DeltaBinaryPacked && kind == format.Int64:
		var err error
		if d.longs, _, err = deltas(b, n, d.longs[:0]); err != nil {
			return nil, err
		}
		for i, x := range d.longs {
			binary.LittleEndian.PutUint64(d.fixed[8*i:], uint64(x))
		}
	case enc == format.ByteStreamSplit && width > 1:
		if len(b) < n*width {
			return nil, errValues
		}
		for i := range n {
			for j := range width {
				d.fixed[i*width+j] = b[j*n+i]
			}
		}
	default:
		return nil, millrace.Errorf(millrace.ErrInvalid, "encoding %v of %v", enc, kind)
	}
	return cut(out, d.fixed, width, n)
}
