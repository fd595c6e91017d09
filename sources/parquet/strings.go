package parquet

import (
	"encoding/binary"
	"fmt"
)

// stringDecoder decodes the encodings of strings beside plain and dictionaries.
type stringDecoder struct {
	lengths  []int32
	prefixes []int32
	joined   []byte // DELTA_BYTE_ARRAY: whole values
}

// plainStrings appends n strings, each behind its length.
func plainStrings(out [][]byte, b []byte, n int) ([][]byte, error) {
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

func (d *stringDecoder) deltaLengthValues(out [][]byte, b []byte, n int) ([][]byte, error) {
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

// deltaValues joins each value from the beginning of the value before it and its own rest. It bounds the sum of the
// values first, as a page may declare far more than it has.
func (d *stringDecoder) deltaValues(out [][]byte, b []byte, n int) ([][]byte, error) {
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
	if d.joined == nil || int64(cap(d.joined)) < total { // an empty string must not be nil, which is null
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
