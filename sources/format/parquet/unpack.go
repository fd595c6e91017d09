package parquet

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/format"
	"github.com/pierrec/lz4/v4"

	"millrace"
)

// unpacker decompresses pages into buffers of the size that their headers declare. It never writes more. It is not safe
// for concurrent use.
type unpacker struct {
	codec format.CompressionCodec
	zstd  *zstd.Decoder
	gzip  gzip.Reader
	br    brotli.Reader
}

func newUnpacker(codec format.CompressionCodec) (*unpacker, error) {
	u := &unpacker{codec: codec}
	switch codec {
	case format.Uncompressed, format.Snappy, format.Gzip, format.Brotli, format.Lz4Raw, format.Lz4:
		return u, nil
	case format.Zstd:
		dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecodeAllCapLimit(true))
		if err != nil {
			return nil, fmt.Errorf("decompress pages: %w", err)
		}
		u.zstd = dec
		return u, nil
	}
	return nil, millrace.Errorf(millrace.ErrInvalid,
		"codec %v is not read; write the file again with zstd, snappy, gzip, brotli, LZ4 or none", codec)
}

func (u *unpacker) close() {
	if u.zstd != nil {
		u.zstd.Close()
	}
}

// unpack appends exactly size bytes to out, which has room for them.
func (u *unpacker) unpack(out, packed []byte, size int) ([]byte, error) {
	from := len(out)
	var err error
	switch u.codec {
	case format.Uncompressed:
		out = append(out, packed[:min(size, len(packed))]...)
	case format.Snappy:
		var n int
		if n, err = snappy.DecodedLen(packed); err == nil && n == size {
			_, err = snappy.Decode(out[from:from+size], packed)
			out = out[:from+size]
		}
	case format.Zstd:
		// The decoder may fill only the declared size.
		var part []byte
		part, err = u.zstd.DecodeAll(packed, out[from:from:from+size])
		out = out[:from+len(part)]
	case format.Gzip:
		if err = u.gzip.Reset(bytes.NewReader(packed)); err == nil {
			var n int
			n, err = io.ReadFull(&u.gzip, out[from:from+size])
			out = out[:from+n]
		}
	case format.Brotli:
		if err = u.br.Reset(bytes.NewReader(packed)); err == nil {
			var n int
			n, err = io.ReadFull(&u.br, out[from:from+size])
			out = out[:from+n]
		}
	case format.Lz4Raw:
		out, err = unpackLZ4(out, packed, size)
	case format.Lz4:
		out, err = unpackHadoop(out, packed, size)
	}
	if err == nil && len(out)-from != size {
		err = fmt.Errorf("it has another size than the %d bytes declared", size)
	}
	return out, err
}

// unpackHadoop decodes the codec LZ4 of old writers: blocks behind their unpacked and their packed size, both
// big-endian. Some writers left the sizes out.
func unpackHadoop(out, b []byte, size int) ([]byte, error) {
	from, all := len(out), b
	for len(b) > 8 {
		plain, packed := binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])
		if b = b[8:]; uint64(packed) > uint64(len(b)) || uint64(plain) > uint64(size-(len(out)-from)) {
			break
		}
		part, err := unpackLZ4(out, b[:packed], int(plain))
		if err != nil || len(part)-len(out) != int(plain) {
			break
		}
		out, b = part, b[packed:]
	}
	if len(b) == 0 && len(out)-from == size {
		return out, nil
	}
	return unpackLZ4(out[:from], all, size)
}

// unpackLZ4 appends the content of one raw LZ4 block of at most size bytes to out, which has room for them.
func unpackLZ4(out, b []byte, size int) ([]byte, error) {
	from := len(out)
	n, err := lz4.UncompressBlock(b, out[from:from+size])
	return out[:from+max(n, 0)], err
}
