package megatron

import (
	"encoding/binary"
	"slices"

	"millrace"
	"millrace/sources"
)

// mostToken is the largest token id. Each dtype of a batch can hold it.
const mostToken = 1<<31 - 1

// dtype is the type of the tokens in a .bin.
type dtype struct {
	name   string
	size   int
	signed bool
}

// dtypeOf returns the type of a code of Megatron's indexed datasets. Floating point has codes there, but is no type of
// tokens.
func dtypeOf(idx sources.File, code byte) (*dtype, error) {
	switch code {
	case 1:
		return &dtype{"u8", 1, false}, nil
	case 2:
		return &dtype{"i8", 1, true}, nil
	case 3:
		return &dtype{"i16", 2, true}, nil
	case 4:
		return &dtype{"i32", 4, true}, nil
	case 5:
		return &dtype{"i64", 8, true}, nil
	case 6, 7:
		return nil, millrace.Errorf(millrace.ErrInvalid, "open index %s: its dtype is floating point (code %d), "+
			"which holds no tokens; write the dataset with an integer dtype", idx.Name(), code)
	case 8:
		return &dtype{"u16", 2, false}, nil
	}
	return nil, misfit(idx, "no dtype has the code %d", code)
}

// decode appends the tokens of b. At the first value that is no token id, it returns that value with its position, and
// ok is false.
func (d *dtype) decode(out []uint32, b []byte) (tokens []uint32, wrong int64, at int, ok bool) {
	begin, n := len(out), len(b)/d.size
	out = slices.Grow(out, n)[:begin+n]
	to, le := out[begin:], binary.LittleEndian
	switch { // one loop for each type of most datasets
	case d.size == 2 && !d.signed:
		for i := range to {
			to[i] = uint32(le.Uint16(b[2*i : 2*i+2]))
		}
		return out, 0, 0, true
	case d.size == 4:
		all := uint32(0)
		for i := range to {
			v := le.Uint32(b[4*i : 4*i+4])
			to[i] = v
			all |= v
		}
		if all <= mostToken {
			return out, 0, 0, true
		}
	}
	for i := range to {
		v := d.value(b[i*d.size:])
		if v < 0 || v > mostToken {
			return out[:begin+i], v, i, false
		}
		to[i] = uint32(v)
	}
	return out, 0, 0, true
}

// value returns the value at the beginning of b.
func (d *dtype) value(b []byte) int64 {
	le := binary.LittleEndian
	switch {
	case d.size == 1 && d.signed:
		return int64(int8(b[0]))
	case d.size == 1:
		return int64(b[0])
	case d.size == 2 && d.signed:
		return int64(int16(le.Uint16(b)))
	case d.size == 2:
		return int64(le.Uint16(b))
	case d.size == 4:
		return int64(int32(le.Uint32(b)))
	}
	return int64(le.Uint64(b))
}
