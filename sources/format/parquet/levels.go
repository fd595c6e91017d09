package parquet

import (
	"encoding/binary"
	"errors"
)

var errValues = errors.New("values do not fit their page")

// resize returns a slice of n elements, in the memory of b if it has room.
func resize[T any](b []T, n int) []T {
	if cap(b) < n {
		return make([]T, n)
	}
	return b[:n]
}

// runs decodes the hybrid of run lengths and bit packing, which levels and dictionary indices have: encoding RLE of
// https://github.com/apache/parquet-format/blob/master/Encodings.md.
type runs struct {
	b     []byte
	width int
	// the run being read
	left   int
	packed bool
	value  uint32
	bits   uint64 // packed: bits that were read and not used, lowest first
	have   int
}

// fill decodes len(out) values.
func (r *runs) fill(out []uint32) error {
	if r.width == 0 {
		clear(out)
		return nil
	}
	for len(out) > 0 {
		if r.left == 0 {
			if err := r.run(); err != nil {
				return err
			}
		}
		n := min(r.left, len(out))
		if !r.packed {
			for i := range out[:n] {
				out[i] = r.value
			}
		} else if err := r.unpack(out[:n]); err != nil {
			return err
		}
		r.left -= n
		out = out[n:]
	}
	return nil
}

func (r *runs) run() error {
	head, size := binary.Uvarint(r.b)
	if size <= 0 || head>>1 > 1<<31 {
		return errValues
	}
	r.b = r.b[size:]
	if r.packed = head&1 != 0; r.packed {
		r.left, r.bits, r.have = int(head>>1)*8, 0, 0
		return nil
	}
	n := (r.width + 7) / 8
	if len(r.b) < n {
		return errValues
	}
	r.left, r.value = int(head>>1), 0
	for i, c := range r.b[:n] {
		r.value |= uint32(c) << (8 * i)
	}
	r.b = r.b[n:]
	return nil
}

func (r *runs) unpack(out []uint32) error {
	mask := uint32(1)<<r.width - 1
	for i := range out {
		for r.have < r.width {
			if len(r.b) == 0 {
				return errValues
			}
			r.bits |= uint64(r.b[0]) << r.have
			r.b = r.b[1:]
			r.have += 8
		}
		out[i] = uint32(r.bits) & mask
		r.bits >>= r.width
		r.have -= r.width
	}
	return nil
}

// deltas decodes exactly want values of the encoding DELTA_BINARY_PACKED and returns the bytes behind them. See
// https://github.com/apache/parquet-format/blob/master/Encodings.md.
func deltas[T int32 | int64](b []byte, want int, out []T) ([]T, []byte, error) {
	var head [4]uint64 // block size, miniblocks of a block, values, first value (zigzag)
	for i := range head {
		v, size := binary.Uvarint(b)
		if size <= 0 {
			return nil, nil, errValues
		}
		head[i], b = v, b[size:]
	}
	block, minis, count := head[0], head[1], head[2]
	if count != uint64(want) || minis == 0 || minis > 1<<16 || block > 1<<24 || block%minis != 0 ||
		block/minis%32 != 0 ||
		block == 0 {
		return nil, nil, errValues
	}
	value := unzigzag(head[3])
	if want > 0 {
		out = append(out, T(value))
	}
	for len(out) < want {
		least, size := binary.Uvarint(b)
		if size <= 0 || uint64(len(b)-size) < minis {
			return nil, nil, errValues
		}
		widths := b[size:][:minis]
		b = b[size+int(minis):]
		for _, w := range widths {
			if len(out) == want {
				break // no miniblock follows the last value
			}
			bytes := int(block/minis) / 8 * int(w)
			if w > 64 || len(b) < bytes {
				return nil, nil, errValues
			}
			out, value = appendDeltas(out, b[:bytes], int(w), min(int(block/minis), want-len(out)), value,
				unzigzag(least))
			b = b[bytes:]
		}
	}
	return out, b, nil
}

// appendDeltas adds one miniblock's n values. Sums wrap around, as the encoding demands.
func appendDeltas[T int32 | int64](out []T, b []byte, width, n int, value, least int64) ([]T, int64) {
	at := 0
	for range n {
		var d uint64
		for got := 0; got < width; {
			take := min(8-at%8, width-got)
			part := uint64(b[at/8]) >> (at % 8) & (1<<take - 1)
			d |= part << got
			got += take
			at += take
		}
		value += least + int64(d)
		out = append(out, T(value))
	}
	return out, value
}

func unzigzag(v uint64) int64 { return int64(v>>1) ^ -int64(v&1) }
