package arrayrecord

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"

	"millrace/sources"
)

// unpacker unpacks parts of chunks. It is not safe for concurrent use.
type unpacker struct {
	zstd          *zstd.Decoder
	sizes, values []byte // unpacked parts of the last chunk
}

func (u *unpacker) close() {
	if u.zstd != nil {
		u.zstd.Close()
	}
}

const (
	mostWindow = 128 << 20 // largest window of zstd that is unpacked
	mostAtOnce = 1 << 20   // bytes for which memory is taken before any of them comes out
)

// decoder returns the zstd decoder.
func (u *unpacker) decoder() (*zstd.Decoder, error) {
	if u.zstd != nil {
		return u.zstd, nil
	}
	var err error
	u.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(mostWindow), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		return nil, fmt.Errorf("make a zstd decoder: %w", err)
	}
	return u.zstd, nil
}

// stream returns the unpacked bytes of a part, and their number.
func (u *unpacker) stream(packing byte, part []byte) (io.Reader, uint64, error) {
	if packing == 0 {
		return bytes.NewReader(part), uint64(len(part)), nil
	}
	n, size := binary.Uvarint(part)
	if size <= 0 {
		return nil, 0, damaged("a packed part has no size")
	}
	part = part[size:]
	switch packing {
	case 'b':
		return brotli.NewReader(bytes.NewReader(part)), n, nil
	case 'z':
		d, err := u.decoder()
		if err != nil {
			return nil, 0, err
		}
		if err := d.Reset(bytes.NewReader(part)); err != nil {
			return nil, 0, damaged("its zstd data cannot be unpacked: %v", err)
		}
		return d, n, nil
	case 's':
		return snappyPart(part, n)
	}
	return nil, 0, damaged("its packing %q is not known", packing)
}

// snappyPart unpacks one raw block of Snappy. A byte of it gives at most 64.
func snappyPart(part []byte, n uint64) (io.Reader, uint64, error) {
	if m, err := snappy.DecodedLen(part); err != nil || uint64(m) != n || n > 64*uint64(len(part)) {
		return nil, 0, damaged("its Snappy data has another size")
	}
	out, err := snappy.Decode(nil, part)
	if err != nil {
		return nil, 0, damaged("its Snappy data cannot be unpacked: %v", err)
	}
	return bytes.NewReader(out), n, nil
}

// all unpacks a part into the memory of dst, which grows with the bytes that come out.
func (u *unpacker) all(dst *[]byte, packing byte, part []byte, most uint64) ([]byte, error) {
	if n, size := binary.Uvarint(part); packing == 'z' && size > 0 && n <= min(most, mostAtOnce) {
		return u.atOnce(dst, part[size:], int(n))
	}
	r, n, err := u.stream(packing, part)
	switch {
	case err != nil:
		return nil, err
	case n > most:
		return nil, damaged("%w", sources.Limited("write the file again with a smaller group_size",
			"it has %d bytes unpacked, more than %d", n, most))
	case packing == 0:
		return part, nil
	}
	out := (*dst)[:0]
	for {
		if len(out) == cap(out) {
			grown := make([]byte, len(out), min(max(4<<10, 2*uint64(cap(out))), n+1))
			copy(grown, out)
			out = grown
		}
		k, err := r.Read(out[len(out):cap(out)])
		out = out[:len(out)+k]
		switch {
		case uint64(len(out)) > n || errors.Is(err, io.EOF) && uint64(len(out)) < n:
			return nil, damaged("it does not unpack to %d bytes", n)
		case errors.Is(err, io.EOF):
			*dst = out
			return out, nil
		case err != nil:
			return nil, damaged("it cannot be unpacked: %v", err)
		}
	}
}

// atOnce unpacks a part of zstd that has n bytes unpacked.
func (u *unpacker) atOnce(dst *[]byte, part []byte, n int) ([]byte, error) {
	d, err := u.decoder()
	if err != nil {
		return nil, err
	}
	*dst = slices.Grow((*dst)[:0], n)
	out, err := d.DecodeAll(part, (*dst)[:0:n])
	switch {
	case err != nil:
		return nil, damaged("it cannot be unpacked: %v", err)
	case len(out) != n:
		return nil, damaged("it does not unpack to %d bytes", n)
	}
	return out, nil
}
