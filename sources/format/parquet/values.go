package parquet

import (
	"encoding/binary"
	"fmt"

	"github.com/parquet-go/parquet-go/format"

	"millrace"
	"millrace/sources"
)

// decoder turns the values of a page into byte strings that alias the page, the dictionary or the decoder. They live
// until its next page.
type decoder struct {
	column     *column
	dictionary [][]byte
	indices    []uint32
	strings    stringDecoder
	fixed      fixedDecoder
}

// decodeValues appends n values.
func (d *decoder) decodeValues(out [][]byte, enc format.Encoding, b []byte, n int) ([][]byte, error) {
	if n == 0 {
		return out, nil // a page of nulls may have nothing behind its levels
	}
	switch enc {
	case format.Plain:
		return d.decodePlain(out, b, n)
	case plainDictionary, format.RLEDictionary:
		return d.dictionaryValues(out, b, n)
	}
	isFixed := d.column.kind != format.ByteArray
	if isFixed && !(enc == format.DeltaByteArray && d.column.kind == format.FixedLenByteArray) {
		return d.fixed.decode(out, d.column, enc, b, n)
	}
	switch enc {
	case format.DeltaLengthByteArray:
		return d.strings.deltaLengthValues(out, b, n)
	case format.DeltaByteArray:
		from := len(out)
		out, err := d.strings.deltaValues(out, b, n)
		for _, v := range out[min(from, len(out)):] {
			if isFixed && len(v) != d.column.width() {
				return nil, errValues
			}
		}
		return out, err
	}
	return nil, millrace.Errorf(millrace.ErrInvalid, "encoding %v is not one of strings", enc)
}

// decodePlain appends n values that follow one another.
func (d *decoder) decodePlain(out [][]byte, b []byte, n int) ([][]byte, error) {
	if d.column.kind == format.ByteArray {
		return plainStrings(out, b, n)
	}
	return d.fixed.plain(out, d.column, b, n)
}

func (d *decoder) dictionaryValues(out [][]byte, b []byte, n int) ([][]byte, error) {
	d.indices = resize(d.indices, n)
	if err := decodeIndices(d.indices, b); err != nil {
		return nil, err
	}
	return d.ofDictionary(out)
}

// ofDictionary appends the values at the indices.
func (d *decoder) ofDictionary(out [][]byte) ([][]byte, error) {
	for _, i := range d.indices {
		if uint64(i) >= uint64(len(d.dictionary)) {
			return nil, fmt.Errorf("value %d of a dictionary of %d", i, len(d.dictionary))
		}
		out = append(out, d.dictionary[i])
	}
	return out, nil
}

// decodeIndices fills out with places in a dictionary.
func decodeIndices(out []uint32, b []byte) error {
	if len(b) == 0 || b[0] > 32 {
		return errValues
	}
	r := runs{b: b[1:], width: int(b[0])}
	return r.fill(out)
}

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
			return nil, sources.Limited(pageCure, "its values have more than %d bytes", mostPage)
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

// fixedDecoder decodes numbers and booleans.
type fixedDecoder struct {
	bytes []byte // values that a page does not hold as they are
	bits  []uint32
	ints  []int32
	longs []int64
}

// plain appends n values that follow one another.
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

// decode appends n values in one of the encodings other than plain and dictionaries.
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
