package tokenfiles

import (
	"encoding/binary"
	"regexp"
	"strconv"
	"strings"

	"millrace"
	"millrace/sources"
)

// head has the facts of a file's header. The zero value is that of a file without one.
type head struct {
	from  int64  // first byte of the ids
	dtype string // by NumPy's name; "" if the file has no header
	row   uint64 // ids of a row, if the file is an array of two dimensions
}

// Sizes of headers.
const (
	numpyMagic = "\x93NUMPY"
	mostNumpy  = 64 << 10 // NumPy itself refuses longer ones
	llmcBytes  = 256 * 4
)

// The magic numbers of llm.c.
const (
	llmc16 = 20240520 // GPT-2: uint16
	llmc32 = 20240801 // Llama 3: uint32
)

func readHead(f sources.File) (head, error) {
	first := make([]byte, min(f.Size(), 12))
	if err := sources.ReadFull(f, first, 0); err != nil {
		return head{}, err
	}
	switch {
	case strings.HasPrefix(string(first), numpyMagic):
		return readNumpy(f, first)
	case len(first) == 12 && f.Size() >= llmcBytes && binary.LittleEndian.Uint32(first[4:]) == 1:
		return readLLMC(f, first)
	}
	return head{}, nil
}

// readLLMC reads the header of llm.c: magic, version 1, number of ids, and zeros up to 256 int32.
func readLLMC(f sources.File, first []byte) (head, error) {
	h, size := head{from: llmcBytes, dtype: "uint16"}, int64(2)
	switch binary.LittleEndian.Uint32(first) {
	case llmc16:
	case llmc32:
		h.dtype, size = "uint32", 4
	default:
		return head{}, nil
	}
	count := int64(binary.LittleEndian.Uint32(first[8:]))
	if f.Size()-llmcBytes != count*size {
		return head{}, millrace.Errorf(millrace.ErrDamaged,
			"open %s: its header counts %d ids of %s, and %d bytes follow; write the file again", f.Name(), count,
			h.dtype, f.Size()-llmcBytes)
	}
	return h, nil
}

// describes matches the parts of NumPy's header that decide the content.
var (
	describes = regexp.MustCompile(`'descr':\s*'([<>|=])([a-z])(\d{1,2})'`)
	ordered   = regexp.MustCompile(`'fortran_order':\s*(True|False)`)
	shaped    = regexp.MustCompile(`'shape':\s*\(\s*(\d+)\s*,?\s*(?:(\d+)\s*,?\s*)?\)`)
)

// readNumpy reads NumPy's header: magic, version, length, and the text of a dictionary.
func readNumpy(f sources.File, first []byte) (head, error) {
	damaged := func(what string) (head, error) {
		return head{}, millrace.Errorf(millrace.ErrDamaged, "open %s: its NumPy header %s", f.Name(), what)
	}
	if len(first) < 12 {
		return damaged("ends early")
	}
	from, n := int64(10), int64(binary.LittleEndian.Uint16(first[8:]))
	if first[6] > 1 {
		from, n = 12, int64(binary.LittleEndian.Uint32(first[8:]))
	}
	if first[6] < 1 || first[6] > 3 || n > mostNumpy || from+n > f.Size() {
		return damaged("has an unknown version or ends behind the file")
	}
	text := make([]byte, n)
	if err := sources.ReadFull(f, text, from); err != nil {
		return head{}, err
	}
	descr, order, shape := describes.FindSubmatch(text), ordered.FindSubmatch(text), shaped.FindSubmatch(text)
	if descr == nil || order == nil || shape == nil {
		return damaged("describes no array of integers with one or two dimensions")
	}
	kind := map[string]string{"u": "uint", "i": "int"}[string(descr[2])]
	width, _ := strconv.Atoi(string(descr[3]))
	if kind == "" || width != 1 && width != 2 && width != 4 && width != 8 {
		return damaged("says that its values are " + string(descr[2]) + string(descr[3]) + ", not integers")
	}
	h := head{from: from + n, dtype: kind + strconv.Itoa(8*width)}
	rows, err := strconv.ParseInt(string(shape[1]), 10, 64)
	row := int64(1)
	if err == nil && shape[2] != nil {
		row, err = strconv.ParseInt(string(shape[2]), 10, 64)
		h.row = uint64(row)
	}
	have := (f.Size() - h.from) / int64(width)
	switch {
	case string(descr[1]) == ">" && width > 1:
		return damaged("says that its values are big-endian, which are not read; save it with `<`")
	case h.row > 0 && string(order[1]) == "True":
		return damaged("says that it lies in Fortran's order; save it in C's order")
	case err != nil || row == 0 || rows > have/row || rows*row*int64(width) != f.Size()-h.from:
		return damaged("has a shape that does not fit the " + strconv.FormatInt(f.Size()-h.from, 10) +
			" bytes that follow")
	}
	return h, nil
}
