package webdataset

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"millrace/sources/format/parts/arrays"
	"millrace/sources/values"
)

// valueOf returns the value of a member by the ending of its suffix, in memory of its own.
func valueOf(suffix string, b []byte) (any, error) {
	switch ending := suffix[strings.LastIndexByte(suffix, '.')+1:]; ending {
	case "txt", "text", "transcript":
		return string(b), nil
	case "cls", "cls2", "index", "inx", "id":
		n, err := strconv.Atoi(string(bytes.TrimSpace(b)))
		if err != nil {
			return nil, fmt.Errorf("it is no integer: %w", err)
		}
		return n, nil
	case "json", "jsn":
		return values.FromJSON(b)
	case "npy":
		return fromNPY(b)
	}
	if isPickle(suffix) {
		return nil, errors.New("it holds pickle, which is not read because reading it runs code")
	}
	return append([]byte{}, b...), nil
}

// isPickle reports whether a member of this suffix holds pickle.
func isPickle(suffix string) bool {
	switch suffix[strings.LastIndexByte(suffix, '.')+1:] {
	case "pkl", "pyd", "pickle", "pth", "pt":
		return true
	}
	return false
}

// npyHead has the parts of the head of a .npy file that decide its values.
var npyHead = regexp.MustCompile(
	`^\{ *'descr': *'([<|=>]?)([a-z])([0-9]+)', *'fortran_order': *(True|False), *'shape': *\(([0-9, ]*)\),? *\}\s*$`)

// fromNPY returns the array of a .npy file: magic, u8 version, u8 minor, u16 or u32 length of the head, head, numbers.
func fromNPY(b []byte) (any, error) {
	const magic = "\x93NUMPY"
	if len(b) < 12 || string(b[:6]) != magic || b[6] < 1 || b[6] > 3 {
		return nil, errors.New("it is no .npy file of a known version")
	}
	at, size := 10, uint64(binary.LittleEndian.Uint16(b[8:]))
	if b[6] > 1 {
		at, size = 12, uint64(binary.LittleEndian.Uint32(b[8:]))
	}
	if size > uint64(len(b)-at) {
		return nil, errors.New("the head of its array ends early")
	}
	head := npyHead.FindSubmatch(b[at : at+int(size)])
	if head == nil {
		return nil, fmt.Errorf("its array has a head that is not read: %.80q", b[at:at+int(size)])
	}
	kinds := map[string]string{"u": "uint", "i": "int", "f": "float", "b": "uint"}
	bytes, err := strconv.Atoi(string(head[3]))
	t, ok := arrays.Named(kinds[string(head[2])] + strconv.Itoa(8*bytes))
	switch {
	case err != nil || !ok:
		return nil, fmt.Errorf("its array has numbers of the type %s%s, which are not read", head[2], head[3])
	case string(head[1]) == ">":
		return nil, errors.New("its array has big-endian numbers, which are not read")
	}
	var shape []int64
	for dim := range strings.SplitSeq(string(head[5]), ",") {
		if dim = strings.TrimSpace(dim); dim == "" {
			continue
		}
		n, err := strconv.ParseInt(dim, 10, 48)
		if err != nil {
			return nil, fmt.Errorf("its array has the dimension %s", dim)
		}
		shape = append(shape, n)
	}
	if string(head[4]) == "True" && len(shape) > 1 {
		return nil, errors.New("its array is in Fortran order, which is not read")
	}
	return t.Value(shape, b[at+int(size):])
}
