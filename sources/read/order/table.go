package order

import (
	"encoding/binary"
	"slices"

	"millrace"
)

// Table lists the blocks of one shard, as a scan to the shard's end found them.
type Table []BlockSize

// BlockSize is the size of one block.
type BlockSize struct {
	Records uint64
	Raw     uint64 // uncompressed bytes
}

// Count returns the records of the shard.
func (t Table) Count() (n uint64) {
	for _, b := range t {
		n += b.Records
	}
	return n
}

// Encode returns the table's bytes for the index store: pairs of varints.
func (t Table) Encode() []byte {
	var out []byte
	for _, b := range t {
		out = binary.AppendUvarint(out, b.Records)
		out = binary.AppendUvarint(out, b.Raw)
	}
	return out
}

// DecodeTable reads a table that Encode wrote. Its error wraps millrace.ErrDamaged.
func DecodeTable(in []byte) (Table, error) {
	t := Table{}
	for len(in) > 0 {
		records, a := binary.Uvarint(in)
		raw, b := binary.Uvarint(in[max(a, 0):])
		if a <= 0 || b <= 0 || records == 0 {
			return nil, millrace.Errorf(millrace.ErrDamaged, "decode block table: entry %d", len(t))
		}
		t = append(t, BlockSize{records, raw})
		in = in[a+b:]
	}
	return slices.Clip(t), nil
}
