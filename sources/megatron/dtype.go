package megatron

import (
	"encoding/binary"

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
	le := binary.LittleEndian
	for i := 0; i+d.size <= len(b); i += d.size {
		var v int64
		switch {
		case d.size == 2 && !d.signed:
			v = int64(le.Uint16(b[i:]))
		case d.size == 4:
			v = int64(int32(le.Uint32(b[i:])))
		case d.size == 1 && !d.signed:
			v = int64(b[i])
		case d.size == 1:
			v = int64(int8(b[i]))
		case d.size == 2:
			v = int64(int16(le.Uint16(b[i:])))
		default:
			v = int64(le.Uint64(b[i:]))
		}
		if v < 0 || v > mostToken {
			return out, v, i / d.size, false
		}
		out = append(out, uint32(v))
	}
	return out, 0, 0, true
}
