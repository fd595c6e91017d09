package arrow

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/klauspost/compress/zstd"

	"millrace"
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
		return fail(fmt.Errorf("it declares that %d bytes unpack to %d", len(packed), size))
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
	return millrace.Errorf(millrace.ErrInvalid, "read %s: a compressed buffer at byte %d has %d bytes, at most %d are "+
		"read; write the file again with smaller record batches, or without compression", x.f.Name(), x.off, size,
		int64(mostUnpacked))
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

var errLZ4 = errors.New("its LZ4 frame is damaged")

// unpackLZ4 unpacks the LZ4 frames of b, of together at most size bytes. See
// https://github.com/lz4/lz4/blob/dev/doc/lz4_Frame_format.md. Checksums are passed over.
func unpackLZ4(out, b []byte, size int) ([]byte, error) {
	le := binary.LittleEndian
	for len(b) > 0 {
		if len(b) < 7 || le.Uint32(b) != 0x184d2204 || b[4]>>6 != 1 {
			return nil, errLZ4
		}
		flags, head := b[4], 7
		if flags&8 != 0 {
			head += 8 // the size of the content
		}
		if flags&1 != 0 || len(b) < head {
			return nil, errLZ4 // a dictionary
		}
		b = b[head:]
		for {
			if len(b) < 4 {
				return nil, errLZ4
			}
			n := le.Uint32(b)
			b = b[4:]
			if n == 0 {
				break
			}
			isPlain := n>>31 != 0
			n &^= 1 << 31
			if uint64(n) > uint64(len(b)) {
				return nil, errLZ4
			}
			var err error
			if isPlain && len(out)+int(n) <= size {
				out = append(out, b[:n]...)
			} else if out, err = lz4Block(out, b[:n], size); isPlain || err != nil {
				return nil, errLZ4
			}
			b = b[n:]
			if flags&16 != 0 {
				if len(b) < 4 {
					return nil, errLZ4
				}
				b = b[4:]
			}
		}
		if flags&4 != 0 {
			if len(b) < 4 {
				return nil, errLZ4
			}
			b = b[4:]
		}
	}
	return out, nil
}

// lz4Block appends the content of a block. out may grow to size bytes; matches may reach back to its beginning.
func lz4Block(out, b []byte, size int) ([]byte, error) {
	for len(b) > 0 {
		token := b[0]
		literals, b2, err := lz4Length(b[1:], int(token>>4))
		if err != nil || literals > len(b2) || len(out)+literals > size {
			return nil, errLZ4
		}
		out = append(out, b2[:literals]...)
		if b = b2[literals:]; len(b) == 0 {
			return out, nil // the last sequence has no match
		}
		if len(b) < 2 {
			return nil, errLZ4
		}
		back := int(binary.LittleEndian.Uint16(b))
		match, b3, err := lz4Length(b[2:], int(token&15))
		match += 4
		if err != nil || back == 0 || back > len(out) || len(out)+match > size {
			return nil, errLZ4
		}
		b = b3
		// A match may overlap its own output, so one copy takes at most its distance.
		for at := len(out) - back; match > 0; {
			n := min(match, len(out)-at)
			out = append(out, out[at:at+n]...)
			at += n
			match -= n
		}
	}
	return out, nil
}

func lz4Length(b []byte, n int) (int, []byte, error) {
	if n < 15 {
		return n, b, nil
	}
	for len(b) > 0 && n < mostUnpacked {
		c := b[0]
		b = b[1:]
		if n += int(c); c < 255 {
			return n, b, nil
		}
	}
	return 0, nil, errLZ4
}
