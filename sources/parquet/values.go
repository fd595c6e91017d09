package parquet

import (
	"fmt"

	"github.com/parquet-go/parquet-go/format"

	"millrace"
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
	case format.PlainDictionary, format.RLEDictionary:
		return d.dictionaryValues(out, b, n)
	}
	if d.column.kind != format.ByteArray {
		return d.fixed.decode(out, d.column, enc, b, n)
	}
	switch enc {
	case format.DeltaLengthByteArray:
		return d.strings.deltaLengthValues(out, b, n)
	case format.DeltaByteArray:
		return d.strings.deltaValues(out, b, n)
	}
	return nil, millrace.Errorf(millrace.ErrInvalid, "encoding %v is not one of strings", enc)
}

// decodePlain appends n values that lie one after the other.
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
