package mds

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"millrace/sources/format/parts/arrays"
)

// kind groups encodings by the values that they hold.
type kind uint8

const (
	blob      kind = iota // bytes as they are: bytes and images
	text                  // str, str_decimal
	intText               // str_int
	floatText             // str_float
	number                // integers and floating point of a fixed width
	object                // json
	ndarray               // arrays of numbers
)

// encoding is the way in which a column's values are stored.
type encoding struct {
	kind  kind
	dtype arrays.Type // number; ndarray: zero if each value has its own
	shape []int64     // ndarray: nil if each value has its own
}

// typeOf returns the type that a byte of an array names.
func typeOf(code byte) (arrays.Type, bool) {
	names := map[byte]string{8: "uint8", 9: "int8", 16: "uint16", 17: "int16", 18: "float16", 32: "uint32",
		33: "int32", 34: "float32", 64: "uint64", 65: "int64", 66: "float64"}
	return arrays.Named(names[code])
}

// parseEncoding reads the name of an encoding.
func parseEncoding(name string) (encoding, error) {
	switch name {
	case "bytes", "pil", "jpeg", "png":
		return encoding{kind: blob}, nil
	case "str", "str_decimal":
		return encoding{kind: text}, nil
	case "str_int":
		return encoding{kind: intText}, nil
	case "str_float":
		return encoding{kind: floatText}, nil
	case "json":
		return encoding{kind: object}, nil
	case "int":
		return encoding{kind: number, dtype: arrays.Type{Size: 8, Signed: true}}, nil
	case "ndarray":
		return encoding{kind: ndarray}, nil
	case "pkl":
		return encoding{}, errors.New("it holds pickle, which is not read because reading it runs code; write the " +
			"column as str, json or ndarray")
	}
	if t, ok := arrays.Named(name); ok {
		return encoding{kind: number, dtype: t}, nil
	}
	if rest, ok := strings.CutPrefix(name, "ndarray:"); ok {
		return parseArray(name, rest)
	}
	return encoding{}, fmt.Errorf("its encoding %q is not known", name)
}

// parseArray reads `dtype` or `dtype:d0,d1` of an array's encoding.
func parseArray(name, rest string) (encoding, error) {
	of, dims, hasShape := strings.Cut(rest, ":")
	e := encoding{kind: ndarray}
	var ok bool
	if e.dtype, ok = arrays.Named(of); !ok {
		return e, fmt.Errorf("its encoding %q has an unknown type of numbers", name)
	}
	if !hasShape {
		return e, nil
	}
	for dim := range strings.SplitSeq(dims, ",") {
		n, err := strconv.ParseInt(dim, 10, 32)
		if err != nil || n < 1 {
			return e, fmt.Errorf("its encoding %q has the dimension %q", name, dim)
		}
		e.shape = append(e.shape, n)
	}
	return e, nil
}
