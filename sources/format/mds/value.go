package mds

import (
	"encoding/binary"
	"strconv"

	"millrace/sources/values"
)

// value returns a value in memory of its own, nil if the shard has no such column.
func (d *decoder) value(w *want, b []byte) (any, error) {
	if w.column < 0 {
		return nil, nil
	}
	place := d.places[w.column]
	b = b[place[0]:place[1]]
	v, err := w.encoding.value(b)
	if err != nil {
		return nil, bad("column %q: %v", d.config.Names[w.column], err)
	}
	if w.inside != nil {
		record, _ := v.(values.Object)
		v, _ = w.inside.Of(record)
	}
	return v, nil
}

// value returns the value of a column's bytes.
func (e encoding) value(b []byte) (any, error) {
	switch e.kind {
	case text:
		return string(b), nil
	case intText:
		return fromDigits(string(b)), nil
	case floatText:
		return strconv.ParseFloat(string(b), 64)
	case number:
		return e.dtype.Scalar(b)
	case object:
		return values.FromJSON(b)
	case ndarray:
		return e.array(b)
	}
	return append([]byte{}, b...), nil
}

// fromDigits returns the integer that a text writes, or the text if an int does not hold it.
func fromDigits(s string) any {
	if n, err := strconv.Atoi(s); err == nil {
		return n
	}
	return s
}

// array returns an array. The parts that its encoding leaves open come before the numbers: a byte for the type, and a
// byte with the number of dimensions and the width of each, then the dimensions.
func (e encoding) array(b []byte) (any, error) {
	if e.dtype.Size == 0 {
		if len(b) == 0 {
			return nil, bad("an array has no type")
		}
		var ok bool
		if e.dtype, ok = typeOf(b[0]); !ok {
			return nil, bad("an array has the type %d, which is not known", b[0])
		}
		b = b[1:]
	}
	if e.shape == nil {
		if len(b) == 0 {
			return nil, bad("an array has no shape")
		}
		dims, width := int(b[0]>>2), 1<<(b[0]&3)
		if b = b[1:]; len(b) < dims*width {
			return nil, bad("an array ends inside its shape")
		}
		e.shape = make([]int64, dims)
		for i := range e.shape {
			var n [8]byte
			copy(n[:], b[i*width:(i+1)*width])
			e.shape[i] = int64(binary.LittleEndian.Uint64(n[:]))
		}
		b = b[dims*width:]
	}
	return e.dtype.Value(e.shape, b)
}
