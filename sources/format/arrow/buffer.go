package arrow

import (
	"encoding/binary"
	"fmt"

	"github.com/klauspost/compress/zstd"

	"millrace/sources"
)

// The codecs of compressed buffers.
const (
	codecNone = -1
	codecLZ4  = 0
	codecZstd = 1
)

// Bounds of a compressed buffer: it is unpacked as a whole.
const (
	mostUnpacked = 1 << 30
	mostRatio    = 1 << 14 // unpacked bytes for each packed one, above freeRatio
	freeRatio    = 1 << 20
)

// Bytes around a value that are read with it.
const (
	aheadAlone = 4 << 10   // in random reads
	aheadScan  = 128 << 10 // in scans
)

// buffer is one buffer of a batch. A compressed one is unpacked when it is first read; of others a window is read.
type buffer struct {
	f     sources.File
	off   int64 // in the file
	size  int64 // in the file
	codec int
	ahead int64
	win   []byte
	lo    int64 // of the window in the buffer
	plain []byte
	done  bool // plain is set
}

// assign makes the buffer another one, with the memory of this one.
func (x *buffer) assign(f sources.File, off, size int64, codec int, ahead int64) {
	*x = buffer{f: f, off: off, size: size, codec: codec, ahead: ahead, win: x.win[:0], plain: x.plain[:0]}
}

// at returns n bytes from byte lo on. They are valid until the next call.
func (x *buffer) at(lo, n int64) ([]byte, error) {
	if x.codec != codecNone {
		if err := x.unpack(); err != nil {
			return nil, err
		}
		if lo < 0 || n < 0 || n > int64(len(x.plain))-lo {
			return nil, x.outside(lo, n, int64(len(x.plain)))
		}
		return x.plain[lo : lo+n], nil
	}
	if lo < 0 || n < 0 || n > x.size-lo {
		return nil, x.outside(lo, n, x.size)
	}
	if lo < x.lo || lo+n > x.lo+int64(len(x.win)) {
		size := min(max(n, x.ahead), x.size-lo)
		if int64(cap(x.win)) < size {
			x.win = make([]byte, size)
		}
		x.win, x.lo = x.win[:size], lo
		if err := sources.ReadFull(x.f, x.win, x.off+lo); err != nil {
			x.win = x.win[:0]
			return nil, err
		}
	}
	return x.win[lo-x.lo:][:n], nil
}

func (x *buffer) outside(lo, n, size int64) error {
	return damaged(x.f, "a value takes %d bytes at byte %d of a buffer of %d bytes, which begins at byte %d", n, lo,
		size, x.off)
}

// unpack unpacks the buffer. Its first 8 bytes are the unpacked size, -1 for a buffer that is not compressed.
func (x *buffer) unpack() error {
	if x.done || x.size == 0 {
		return nil
	}
	fail := func(err error) error { return damaged(x.f, "buffer at byte %d: %w", x.off, err) }
	if x.size < 8 {
		return fail(errFlat)
	}
	if x.size > mostUnpacked {
		return x.tooLarge(x.size)
	}
	packed := make([]byte, x.size)
	if err := sources.ReadFull(x.f, packed, x.off); err != nil {
		return err
	}
	size := int64(binary.LittleEndian.Uint64(packed))
	packed = packed[8:]
	switch {
	case size == -1:
		x.plain, x.done = packed, true
		return nil
	case size < 0, size > freeRatio && size/mostRatio > int64(len(packed)):
		return fail(sources.Limited("write the file again without compression",
			"it declares that %d bytes unpack to %d", len(packed), size))
	case size > mostUnpacked:
		return x.tooLarge(size)
	}
	if int64(cap(x.plain)) < size {
		x.plain = make([]byte, 0, size)
	}
	var err error
	if x.codec == codecZstd {
		x.plain, err = unpackZstd(x.plain[:0], packed)
	} else {
		x.plain, err = unpackLZ4(x.plain[:0], packed, int(size))
	}
	if err == nil && int64(len(x.plain)) != size {
		err = fmt.Errorf("it declares %d bytes and has %d", size, len(x.plain))
	}
	if err != nil {
		return fail(err)
	}
	x.done = true
	return nil
}

func (x *buffer) tooLarge(size int64) error {
	return damaged(x.f, "buffer at byte %d: %w", x.off, sources.Limited("write the file again with smaller record "+
		"batches, or without compression", "it is compressed and has %d bytes, at most %d are read", size,
		int64(mostUnpacked)))
}

// unpackZstd never writes more than the capacity of out.
func unpackZstd(out, b []byte) ([]byte, error) {
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		return nil, err
	}
	defer dec.Close()
	return dec.DecodeAll(b, out)
}
