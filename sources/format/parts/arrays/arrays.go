// Package arrays turns the stored arrays of numbers into the values of fields: token ids if they can be
// ids, else nested lists of numbers.
package arrays

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"millrace/sources/values"
)

// Type is a type of little-endian numbers. Its zero value is no type.
type Type struct {
	Size   int // bytes
	Signed bool
	Float  bool
	Brain  bool // a float of 16 bits with the exponent of one of 32 bits
}

// mostID is the largest token id. Each dtype of a batch can hold it.
const mostID = 1<<31 - 1

// Named returns the type of a name of NumPy, such as uint16. ok is false for other names.
func Named(name string) (t Type, ok bool) {
	switch name {
	case "uint8":
		t = Type{Size: 1}
	case "int8":
		t = Type{Size: 1, Signed: true}
	case "uint16":
		t = Type{Size: 2}
	case "int16":
		t = Type{Size: 2, Signed: true}
	case "uint32":
		t = Type{Size: 4}
	case "int32":
		t = Type{Size: 4, Signed: true}
	case "uint64":
		t = Type{Size: 8}
	case "int64":
		t = Type{Size: 8, Signed: true}
	case "float16":
		t = Type{Size: 2, Float: true}
	case "float32":
		t = Type{Size: 4, Float: true}
	case "float64":
		t = Type{Size: 8, Float: true}
	}
	return t, t.Size > 0
}

// Scalar returns the number in b: an int, a float64, or a values.Number beyond 63 bits.
func (t Type) Scalar(b []byte) (any, error) {
	if len(b) != t.Size {
		return nil, fmt.Errorf("a number of %d bytes has %d", t.Size, len(b))
	}
	switch {
	case t.Brain:
		return float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(b)) << 16)), nil
	case t.Float:
		return values.Type{Kind: values.Float}.Of(b)
	case t.Signed:
		return values.Type{Kind: values.Signed}.Of(b)
	}
	return values.Type{Kind: values.Whole}.Of(b)
}

// integer returns the integer at the beginning of b, and false if it is larger than an int64.
func (t Type) integer(b []byte) (int64, bool) {
	le := binary.LittleEndian
	switch {
	case t.Size == 1 && t.Signed:
		return int64(int8(b[0])), true
	case t.Size == 1:
		return int64(b[0]), true
	case t.Size == 2 && t.Signed:
		return int64(int16(le.Uint16(b))), true
	case t.Size == 2:
		return int64(le.Uint16(b)), true
	case t.Size == 4 && t.Signed:
		return int64(int32(le.Uint32(b))), true
	case t.Size == 4:
		return int64(le.Uint32(b)), true
	}
	v := int64(le.Uint64(b))
	return v, t.Signed || v >= 0
}

// IDs returns the integers of b as token ids in memory of their own. ok is false if the type or a number is not that
// of ids.
func (t Type) IDs(b []byte) (ids []uint32, ok bool) {
	if t.Float || t.Size == 0 || len(b)%t.Size != 0 {
		return nil, false
	}
	le := binary.LittleEndian
	ids = make([]uint32, len(b)/t.Size)
	switch {
	case t.Size == 2 && !t.Signed:
		for i := range ids {
			ids[i] = uint32(le.Uint16(b[2*i:]))
		}
		return ids, true
	case t.Size == 4:
		all := uint32(0)
		for i := range ids {
			ids[i] = le.Uint32(b[4*i:])
			all |= ids[i]
		}
		return ids, all <= mostID
	}
	for i := range ids {
		v, _ := t.integer(b[i*t.Size:])
		if v < 0 || v > mostID {
			return nil, false
		}
		ids[i] = uint32(v)
	}
	return ids, true
}

// mostListed is the largest number of numbers in a list that are not ids.
const mostListed = 1 << 20

// mostDimensions is the largest number of dimensions of an array.
const mostDimensions = 64

// Value returns the array of a shape whose numbers are in b: []uint32 if it has one dimension and its numbers are token
// ids, else lists of int or float64, nested by its dimensions. A dimension of -1, which only a shape of one dimension
// may have, follows from the length of b.
func (t Type) Value(shape []int64, b []byte) (any, error) {
	if len(shape) > mostDimensions {
		return nil, fmt.Errorf("an array has %d dimensions", len(shape))
	}
	if len(b)%t.Size != 0 {
		return nil, fmt.Errorf("an array of numbers of %d bytes has %d bytes", t.Size, len(b))
	}
	count := int64(len(b) / t.Size)
	if len(shape) == 1 && (shape[0] == -1 || shape[0] == count) {
		if ids, ok := t.IDs(b); ok {
			return ids, nil
		}
		shape = []int64{count}
	}
	product := int64(1)
	for _, n := range shape {
		if n < 0 || n > 0 && product > int64(len(b))/n {
			return nil, fmt.Errorf("an array of shape %v has %d numbers", shape, count)
		}
		product *= n
	}
	switch {
	case product != count:
		return nil, fmt.Errorf("an array of shape %v has %d numbers", shape, count)
	case count > mostListed:
		return nil, fmt.Errorf("an array has %d numbers that are not token ids, more than %d", count, mostListed)
	case count == 0 && len(shape) > 1:
		return nil, errors.New("an array of several dimensions is empty")
	}
	v, _, err := t.nest(shape, b)
	return v, err
}

// nest returns the array at the beginning of b, and the bytes behind it.
func (t Type) nest(shape []int64, b []byte) (any, []byte, error) {
	if len(shape) == 0 {
		v, err := t.Scalar(b[:t.Size])
		return v, b[t.Size:], err
	}
	list := make([]any, shape[0])
	var err error
	for i := range list {
		if list[i], b, err = t.nest(shape[1:], b); err != nil {
			return nil, nil, err
		}
	}
	return list, b, nil
}
