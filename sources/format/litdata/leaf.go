package litdata

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"millrace/sources/format/parts/arrays"
)

// decoderOf returns the function that turns the bytes of a leaf into a value in memory of its own.
func decoderOf(format string) (func(b []byte) (any, error), error) {
	kind, code, _ := strings.Cut(format, ":")
	switch kind {
	case "str", "text":
		return func(b []byte) (any, error) { return string(b), nil }, nil
	case "int":
		return arrays.Type{Size: 8, Signed: true}.Scalar, nil
	case "float":
		return arrays.Type{Size: 8, Float: true}.Scalar, nil
	case "bool":
		return boolean, nil
	case "json":
		return nestedValue, nil
	case "tensor":
		return func(b []byte) (any, error) { return headed(b, binary.BigEndian, torchType) }, nil
	case "numpy":
		return func(b []byte) (any, error) { return headed(b, binary.LittleEndian, numpyType) }, nil
	case "no_header_tensor":
		return bare(code, torchType)
	case "no_header_numpy":
		return bare(code, numpyType)
	case "pickle", "graph":
		return nil, errors.New("it holds pickle, which is not read because reading it runs code")
	case "bytes", "pil", "jpeg", "jpeg_array", "image", "video", "audio", "file", "tifffile", "nifti", "mesh", "pdf":
		return func(b []byte) (any, error) { return append([]byte{}, b...), nil }, nil
	}
	return nil, fmt.Errorf("its format %q is not known", format)
}

func boolean(b []byte) (any, error) {
	if len(b) != 1 || b[0] > 1 {
		return nil, fmt.Errorf("a boolean has the bytes %x", b[:min(len(b), 8)])
	}
	return b[0] == 1, nil
}

// torchType returns the type of a code of PyTorch tensors.
func torchType(code uint32) (arrays.Type, bool) {
	switch code {
	case 0, 1:
		return arrays.Named("float32")
	case 2, 3:
		return arrays.Named("float64")
	case 8, 9:
		return arrays.Named("float16")
	case 10:
		return arrays.Type{Size: 2, Float: true, Brain: true}, true
	case 11, 19:
		return arrays.Named("uint8")
	case 12:
		return arrays.Named("int8")
	case 13, 14:
		return arrays.Named("int16")
	case 15, 16:
		return arrays.Named("int32")
	case 17, 18:
		return arrays.Named("int64")
	case 20:
		return arrays.Named("uint16")
	}
	return arrays.Type{}, false
}

// numpyType returns the type of a code of NumPy arrays.
func numpyType(code uint32) (arrays.Type, bool) {
	names := []string{"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
		"float64"}
	if code >= uint32(len(names)) {
		return arrays.Type{}, false
	}
	return arrays.Named(names[code])
}

// bareType returns the type of the numbers of arrays without a head.
func bareType(code string, typeOf func(uint32) (arrays.Type, bool)) (arrays.Type, error) {
	n, err := strconv.ParseUint(code, 10, 32)
	t, ok := typeOf(uint32(n))
	if err != nil || !ok {
		return t, fmt.Errorf("its numbers have the type %q, which is not read", code)
	}
	return t, nil
}

// bare returns the decoder of arrays of one dimension without a head.
func bare(code string, typeOf func(uint32) (arrays.Type, bool)) (func(b []byte) (any, error), error) {
	t, err := bareType(code, typeOf)
	if err != nil {
		return nil, err
	}
	return func(b []byte) (any, error) { return t.Value([]int64{-1}, b) }, nil
}

// mostDimensions bounds the dimensions of an array.
const mostDimensions = 64

// headed returns an array behind a head: type, number of dimensions, dimensions.
func headed(b []byte, order binary.ByteOrder, typeOf func(uint32) (arrays.Type, bool)) (any, error) {
	if len(b) < 8 {
		return nil, fmt.Errorf("an array has %d bytes", len(b))
	}
	t, ok := typeOf(order.Uint32(b))
	if !ok {
		return nil, fmt.Errorf("an array has the type %d, which is not read", order.Uint32(b))
	}
	dims := order.Uint32(b[4:])
	if b = b[8:]; dims > mostDimensions || int(dims) > len(b)/4 {
		return nil, fmt.Errorf("an array has %d dimensions and %d bytes", dims, len(b))
	}
	shape := make([]int64, dims)
	for i := range shape {
		shape[i] = int64(order.Uint32(b))
		b = b[4:]
	}
	return t.Value(shape, b)
}
