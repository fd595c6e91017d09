package ids

import (
	"encoding/binary"
	"slices"
)

// mostToken is the largest token id. Each dtype of a batch can hold it.
const mostToken = 1<<31 - 1

// DType is the type of the ids in a file. They are little-endian.
type DType struct {
	Name   string
	Size   int // bytes
	Signed bool
}

// ByName returns the type with one of NumPy's names: int8, int16, int32, int64, uint8, uint16, uint32 or uint64.
func ByName(name string) (DType, bool) {
	for _, d := range []DType{
		{"uint16", 2, false}, {"uint32", 4, false}, {"int32", 4, true}, {"int64", 8, true},
		{"int16", 2, true}, {"uint8", 1, false}, {"int8", 1, true}, {"uint64", 8, false},
	} {
		if d.Name == name {
			return d, true
		}
	}
	return DType{}, false
}

// isCertain reports whether every bit pattern is a token id.
func (d DType) isCertain() bool { return d.Size <= 2 && !d.Signed }

// decode appends the tokens of b. At the first value that is no token id, it returns that value with its position, and
// ok is false.
func (d DType) decode(out []uint32, b []byte) (tokens []uint32, wrong int64, at int, ok bool) {
	begin, n := len(out), len(b)/d.Size
	out = slices.Grow(out, n)[:begin+n]
	to, le := out[begin:], binary.LittleEndian
	switch { // one loop for each type of most datasets
	case d.Size == 2 && !d.Signed:
		for i := range to {
			to[i] = uint32(le.Uint16(b[2*i : 2*i+2]))
		}
		return out, 0, 0, true
	case d.Size == 4:
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
		v := d.value(b[i*d.Size:])
		if v < 0 || v > mostToken {
			return out[:begin+i], v, i, false
		}
		to[i] = uint32(v)
	}
	return out, 0, 0, true
}

// value returns the value at the beginning of b. Values of uint64 that int64 cannot hold are negative.
func (d DType) value(b []byte) int64 {
	le := binary.LittleEndian
	switch {
	case d.Size == 1 && d.Signed:
		return int64(int8(b[0]))
	case d.Size == 1:
		return int64(b[0])
	case d.Size == 2 && d.Signed:
		return int64(int16(le.Uint16(b)))
	case d.Size == 2:
		return int64(le.Uint16(b))
	case d.Size == 4 && d.Signed:
		return int64(int32(le.Uint32(b)))
	case d.Size == 4:
		return int64(le.Uint32(b))
	}
	return int64(le.Uint64(b))
}
