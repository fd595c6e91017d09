package parquet

import (
	"encoding/binary"
	"fmt"

	"github.com/parquet-go/parquet-go/format"

	"millrace"
)

// decoder turns the values of a page into strings that alias the page or the dictionary.
type decoder struct {
	column     *column
	longs      []int64
	fixed      []byte // values of one width that a page does not hold as they are
	dictionary [][]byte
	indices    []uint32
	lengths    []int32
	prefixes   []int32
	joined     []byte // DELTA_BYTE_ARRAY: values put together again
}

// values appends n strings.
func (d *decoder) values(out [][]byte, enc format.Encoding, b []byte, n int) ([][]byte, error) {
	if n == 0 {
		return out, nil // a page of nulls may have nothing behind its levels
	}
	switch enc {
	case format.Plain:
		return d.plain(out, b, n)
	case format.PlainDictionary, format.RLEDictionary:
		return d.dictionaryValues(out, b, n)
	}
	if d.column.kind != format.ByteArray {
		return d.fixedValues(out, enc, b, n)
	}
	switch enc {
	case format.DeltaLengthByteArray:
		return d.deltaLengthValues(out, b, n)
	case format.DeltaByteArray:
		return d.deltaValues(out, b, n)
	}
	return nil, millrace.Errorf(millrace.ErrInvalid, "encoding %v is not one of strings", enc)
}

func plainValues(out [][]byte, b []byte, n int) ([][]byte, error) {
	for range n {
		if len(b) < 4 {
			return nil, errValues
		}
		size := binary.LittleEndian.Uint32(b)
		b = b[4:]
		if uint64(size) > uint64(len(b)) {
			return nil, errValues
		}
		out = append(out, b[:size:size])
		b = b[size:]
	}
	return out, nil
}

func (d *decoder) dictionaryValues(out [][]byte, b []byte, n int) ([][]byte, error) {
	if len(b) == 0 || b[0] > 32 {
		return nil, errValues
	}
	if cap(d.indices) < n {
		d.indices = make([]uint32, n)
	}
	d.indices = d.indices[:n]
	r := runs{b: b[1:], width: int(b[0])}
	if err := r.fill(d.indices); err != nil {
		return nil, err
	}
	for _, i := range d.indices {
		if uint64(i) >= uint64(len(d.dictionary)) {
			return nil, fmt.Errorf("value %d of a dictionary of %d", i, len(d.dictionary))
		}
		out = append(out, d.dictionary[i])
	}
	return out, nil
}

func (d *decoder) deltaLengthValues(out [][]byte, b []byte, n int) ([][]byte, error) {
	var err error
	if d.lengths, b, err = deltas(b, n, d.lengths[:0]); err != nil {
		return nil, err
	}
	for _, size := range d.lengths {
		if size < 0 || int(size) > len(b) {
			return nil, errValues
		}
		out = append(out, b[:size:size])
		b = b[size:]
	}
	return out, nil
}

// deltaValues joins each value from the beginning of the one before and its own rest. What they come to is bounded
// beforehand: a page may declare far more than it holds.
func (d *decoder) deltaValues(out [][]byte, b []byte, n int) ([][]byte, error) {
	var err error
	if d.prefixes, b, err = deltas(b, n, d.prefixes[:0]); err != nil {
		return nil, err
	}
	first := len(out)
	if out, err = d.deltaLengthValues(out, b, n); err != nil {
		return nil, err
	}
	total, last := int64(0), int64(0)
	for i, p := range d.prefixes {
		if p < 0 || int64(p) > last {
			return nil, errValues
		}
		last = int64(p) + int64(len(out[first+i]))
		if total += last; total > mostPage {
			return nil, fmt.Errorf("its values have more than %d bytes", mostPage)
		}
	}
	if d.joined == nil || int64(cap(d.joined)) < total { // a string of no bytes must not be nil, which is null
		d.joined = make([]byte, 0, total)
	}
	joined := d.joined[:0]
	var prev []byte
	for i, p := range d.prefixes {
		from := len(joined)
		joined = append(append(joined, prev[:p]...), out[first+i]...)
		prev = joined[from:len(joined):len(joined)]
		out[first+i] = prev
	}
	d.joined = joined
	return out, nil
}
