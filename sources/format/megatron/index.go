package megatron

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/parts/ids"
)

// The .idx begins with magic, version, dtype code, S = sequences and D = documents + 1. Then come S lengths (i32,
// elements), S pointers (i64, bytes of the .bin) and D document indices (i64, sequence numbers). Multimodal datasets
// also have S modes (i8). They are refused: sequences of another mode than text hold bytes of images.
const (
	magic    = "MMIDIDX\x00\x00"
	version  = 1
	headSize = 34
)

// dtypeOf returns the type of a code of Megatron's indexed datasets. Floating point has codes there, but is no type of
// tokens.
func dtypeOf(idx sources.File, code byte) (ids.DType, error) {
	switch code {
	case 6, 7:
		return ids.DType{}, millrace.Errorf(
			millrace.ErrInvalid,
			"open index %s: its dtype is floating point (code %d), "+
				"which holds no tokens; write the dataset with an integer dtype",
			idx.Name(),
			code,
		)
	case 1, 2, 3, 4, 5, 8:
		names := [...]string{1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 8: "uint16"}
		d, _ := ids.ByName(names[code])
		return d, nil
	}
	return ids.DType{}, misfit(idx, "no dtype has the code %d", code)
}

// readIndex reads an .idx and checks that it is consistent in itself and with the .bin. If it is not, none of its
// records can be trusted.
func readIndex(ctx context.Context, idx, bin sources.File) (ids.DType, *ids.Table, error) {
	if idx.Size() < headSize {
		return ids.DType{}, nil, misfit(idx, "%d bytes are no index: its head alone has %d", idx.Size(), headSize)
	}
	head := make([]byte, min(idx.Size(), firstRead))
	if err := sources.ReadFull(idx, head, 0); err != nil {
		return ids.DType{}, nil, err
	}
	le := binary.LittleEndian
	switch {
	case string(head[:9]) != magic:
		return ids.DType{}, nil, misfit(idx, "it does not begin as an index of a Megatron dataset does")
	case le.Uint64(head[9:]) != version:
		return ids.DType{}, nil, misfit(idx, "version %d, want %d", le.Uint64(head[9:]), version)
	}
	dt, err := dtypeOf(idx, head[17])
	if err != nil {
		return ids.DType{}, nil, err
	}
	sequences, boundaries := le.Uint64(head[18:]), le.Uint64(head[26:])
	rest := uint64(idx.Size() - headSize)
	if boundaries < 1 || sequences > rest/12 || boundaries > rest/8 ||
		sequences*12+boundaries*8 != rest && sequences*13+boundaries*8 != rest {
		return ids.DType{}, nil, misfit(
			idx,
			"%d sequences and %d document boundaries do not make its %d bytes",
			sequences,
			boundaries,
			idx.Size(),
		)
	}
	if sequences > 0 && sequences*13+boundaries*8 == rest {
		return ids.DType{}, nil, millrace.Errorf(millrace.ErrInvalid,
			"open index %s: it has a mode (sequence_modes) for each of its %d sequences, as datasets with images "+
				"have, whose bytes are no token ids; write the text into a dataset of its own", idx.Name(), sequences)
	}
	w := &walk{
		ctx: ctx, idx: idx, bin: bin, dtype: dt, sequences: sequences,
		lengths:  newInts(idx, head, headSize, sequences, 4),
		pointers: newInts(idx, head, headSize+4*sequences, sequences, 8),
		bounds:   newInts(idx, head, headSize+12*sequences, boundaries, 8),
	}
	table, err := w.documents(boundaries - 1)
	return dt, table, err
}

// walk reads the three arrays of an .idx side by side.
type walk struct {
	ctx                       context.Context
	idx, bin                  sources.File
	dtype                     ids.DType
	sequences                 uint64
	lengths, pointers, bounds *ints
	sequence                  uint64 // next
	offset                    uint64 // of its first byte in the .bin
}

func (w *walk) documents(count uint64) (*ids.Table, error) {
	var d ids.Builder
	first, err := w.bounds.next()
	if err != nil {
		return nil, err
	}
	if first != 0 {
		return nil, misfit(w.idx, "the first document begins at sequence %d, want 0", first)
	}
	for doc := range count {
		if doc%4096 == 0 && w.ctx.Err() != nil {
			return nil, w.ctx.Err()
		}
		end, err := w.bounds.next()
		if err != nil {
			return nil, err
		}
		if end < int64(w.sequence) || uint64(end) > w.sequences {
			return nil, misfit(w.idx, "document %d goes from sequence %d to %d of %d", doc, w.sequence, end,
				w.sequences)
		}
		length, err := w.upTo(uint64(end))
		if err != nil {
			return nil, err
		}
		d.Add(length)
	}
	switch {
	case w.sequence != w.sequences:
		return nil, misfit(w.idx, "its documents end at sequence %d of %d", w.sequence, w.sequences)
	case w.offset != uint64(w.bin.Size()):
		return nil, misfit(w.idx, "its sequences have %d bytes, but %s has %d", w.offset, w.bin.Name(), w.bin.Size())
	}
	return d.Table(), nil
}

// upTo returns the sum of the lengths of the sequences before end.
func (w *walk) upTo(end uint64) (length uint64, err error) {
	for ; w.sequence < end; w.sequence++ {
		if w.sequence%4096 == 0 && w.ctx.Err() != nil {
			return 0, w.ctx.Err()
		}
		n, err := w.lengths.next()
		if err != nil {
			return 0, err
		}
		pointer, err := w.pointers.next()
		if err != nil {
			return 0, err
		}
		if n < 0 {
			return 0, misfit(w.idx, "sequence %d has %d tokens", w.sequence, n)
		}
		if pointer != int64(w.offset) {
			return 0, misfit(w.idx, "sequence %d begins at byte %d of the .bin, want %d behind the one before",
				w.sequence, pointer, w.offset)
		}
		length += uint64(n)
		w.offset += uint64(n) * uint64(w.dtype.Size)
		if w.offset > uint64(w.bin.Size()) {
			return 0, misfit(w.idx, "sequence %d ends at byte %d, but %s has %d", w.sequence, w.offset, w.bin.Name(),
				w.bin.Size())
		}
	}
	return length, nil
}

// Sizes of reads of an .idx. Many datasets have small ones, which are read whole.
const (
	firstRead = 16 << 10
	nextReads = 32 << 10
)

// ints reads an array of little-endian integers in order.
type ints struct {
	r    *sources.Reader
	size int
	buf  []byte // of the next read; made when it is needed
	rest []byte
}

// newInts returns the array of count integers at an offset of a file that begins with head.
func newInts(f sources.File, head []byte, off, count uint64, size int) *ints {
	end := off + count*uint64(size)
	if end <= uint64(len(head)) {
		return &ints{size: size, rest: head[off:end]}
	}
	return &ints{r: sources.NewReader(f, int64(off), int64(end)), size: size}
}

func (a *ints) next() (int64, error) {
	if len(a.rest) == 0 {
		if a.buf == nil {
			a.buf = make([]byte, nextReads)
		}
		n, err := io.ReadFull(a.r, a.buf)
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return 0, err
		}
		a.rest = a.buf[:n]
	}
	b := a.rest[:a.size]
	a.rest = a.rest[a.size:]
	if a.size == 4 {
		return int64(int32(binary.LittleEndian.Uint32(b))), nil
	}
	return int64(binary.LittleEndian.Uint64(b)), nil
}

func misfit(idx sources.File, format string, args ...any) error {
	return millrace.Errorf(millrace.ErrDamaged, "open index %s: %s", idx.Name(), fmt.Sprintf(format, args...))
}
