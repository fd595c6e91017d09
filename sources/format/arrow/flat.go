package arrow

import (
	"encoding/binary"
	"errors"
)

// errFlat is the reason of metadata that points outside of itself.
var errFlat = errors.New("its metadata does not fit together")

// flat is a table of a FlatBuffer (https://flatbuffers.dev/internals). Every access is checked, as the bytes may be
// damaged. A field that is not there has its default.
type flat struct {
	b   []byte
	pos int // of the table
	vt  int // of its vtable
	n   int // bytes of its vtable
}

// rootOf returns the table of a buffer.
func rootOf(b []byte) (flat, error) {
	if len(b) < 4 {
		return flat{}, errFlat
	}
	return tableAt(b, int64(binary.LittleEndian.Uint32(b)))
}

func tableAt(b []byte, pos int64) (flat, error) {
	if pos < 0 || pos+4 > int64(len(b)) {
		return flat{}, errFlat
	}
	vt := pos - int64(int32(binary.LittleEndian.Uint32(b[pos:])))
	if vt < 0 || vt+4 > int64(len(b)) {
		return flat{}, errFlat
	}
	n := int64(binary.LittleEndian.Uint16(b[vt:]))
	if n < 4 || vt+n > int64(len(b)) {
		return flat{}, errFlat
	}
	return flat{b: b, pos: int(pos), vt: int(vt), n: int(n)}, nil
}

// at returns the place of a field of `size` bytes. ok is false if the table does not have it.
func (t flat) at(field, size int) (pos int, ok bool, err error) {
	slot := 4 + 2*field
	if t.b == nil || slot+2 > t.n {
		return 0, false, nil
	}
	off := int(binary.LittleEndian.Uint16(t.b[t.vt+slot:]))
	if off == 0 {
		return 0, false, nil
	}
	if t.pos+off+size > len(t.b) {
		return 0, false, errFlat
	}
	return t.pos + off, true, nil
}

// number returns an integer field of `size` bytes, sign extended.
func (t flat) number(field, size int, byDefault int64) (int64, error) {
	pos, ok, err := t.at(field, size)
	if !ok || err != nil {
		return byDefault, err
	}
	switch b := t.b[pos:]; size {
	case 1:
		return int64(int8(b[0])), nil
	case 2:
		return int64(int16(binary.LittleEndian.Uint16(b))), nil
	case 4:
		return int64(int32(binary.LittleEndian.Uint32(b))), nil
	default:
		return int64(binary.LittleEndian.Uint64(b)), nil
	}
}

// table returns a table that a field refers to, one without fields if it is not there.
func (t flat) table(field int) (flat, bool, error) {
	pos, ok, err := t.at(field, 4)
	if !ok || err != nil {
		return flat{}, false, err
	}
	out, err := tableAt(t.b, int64(pos)+int64(binary.LittleEndian.Uint32(t.b[pos:])))
	return out, err == nil, err
}

// vector returns the bytes of a vector's elements, each of `size` bytes, and where they begin in the buffer.
func (t flat) vector(field, size int) (elements []byte, at int, err error) {
	pos, ok, err := t.at(field, 4)
	if !ok || err != nil {
		return nil, 0, err
	}
	from := int64(pos) + int64(binary.LittleEndian.Uint32(t.b[pos:]))
	if from+4 > int64(len(t.b)) {
		return nil, 0, errFlat
	}
	n := int64(binary.LittleEndian.Uint32(t.b[from:])) * int64(size)
	from += 4
	if from+n > int64(len(t.b)) {
		return nil, 0, errFlat
	}
	return t.b[from : from+n], int(from), nil
}

// tables returns the tables of a vector of tables.
func (t flat) tables(field int) ([]flat, error) {
	b, at, err := t.vector(field, 4)
	if err != nil {
		return nil, err
	}
	out := make([]flat, 0, len(b)/4)
	for i := 0; i < len(b); i += 4 {
		x, err := tableAt(t.b, int64(at+i)+int64(binary.LittleEndian.Uint32(b[i:])))
		if err != nil {
			return nil, err
		}
		out = append(out, x)
	}
	return out, nil
}

func (t flat) text(field int) (string, error) {
	b, _, err := t.vector(field, 1)
	return string(b), err
}
