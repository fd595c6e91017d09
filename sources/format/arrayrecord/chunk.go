package arrayrecord

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/minio/highwayhash"

	"millrace"
	"millrace/sources"
)

// Sizes of Riegeli's files. At every multiple of blockBytes, a header of a block interrupts the chunks.
const (
	blockBytes  = 64 << 10
	blockHeader = 24
	chunkHeader = 40
)

// hashKey is the key of Riegeli's checksums.
const hashKey = "Riegeli/records\nRiegeli/records\n"

func checksum(b []byte) uint64 { return highwayhash.Sum64(b, []byte(hashKey)) }

// blocks reads the bytes of chunks, without the headers of blocks.
type blocks struct {
	file  sources.File
	ahead int64  // bytes of one read at least; 0: exactly the wanted ones
	buf   []byte // a stretch of the file
	lo    int64
	data  []byte // of the last chunk
}

// read fills dst from a byte of the file on, and returns the byte behind.
func (b *blocks) read(dst []byte, at int64) (next int64, err error) {
	for {
		if at%blockBytes == 0 {
			at += blockHeader
		}
		if len(dst) == 0 {
			return at, nil
		}
		n := min(int64(len(dst)), blockBytes-at%blockBytes)
		if err := b.copy(dst[:n], at); err != nil {
			return 0, err
		}
		dst, at = dst[n:], at+n
	}
}

// copy fills dst with bytes of the file.
func (b *blocks) copy(dst []byte, at int64) error {
	if at < b.lo || at+int64(len(dst)) > b.lo+int64(len(b.buf)) {
		n := min(max(b.ahead, int64(len(dst))), b.file.Size()-at)
		if n < int64(len(dst)) {
			return millrace.Errorf(millrace.ErrDamaged, "read %s: it ends at byte %d, want bytes up to %d",
				b.file.Name(), b.file.Size(), at+int64(len(dst)))
		}
		if int64(cap(b.buf)) < n {
			b.buf = make([]byte, n)
		}
		b.buf, b.lo = b.buf[:n], at
		if err := sources.ReadFull(b.file, b.buf, at); err != nil {
			b.buf = b.buf[:0]
			return err
		}
	}
	copy(dst, b.buf[at-b.lo:])
	return nil
}

// chunk is the content of a chunk in the file.
type chunk struct {
	at      int64
	kind    byte
	count   uint64
	decoded uint64 // bytes of all records
	data    []byte
}

// chunk reads and checks the chunk at a byte of the file. Its data is valid until the next call.
func (b *blocks) chunk(at int64) (c chunk, err error) {
	wrong := func(format string, args ...any) (chunk, error) {
		return chunk{}, millrace.Errorf(millrace.ErrDamaged, "read %s: the chunk at byte %d %s", b.file.Name(), at,
			fmt.Sprintf(format, args...))
	}
	if at < 0 || at > b.file.Size()-chunkHeader {
		return wrong("lies behind the end of the file")
	}
	var head [chunkHeader]byte
	next, err := b.read(head[:], at)
	if err != nil {
		return chunk{}, err
	}
	le := binary.LittleEndian
	if le.Uint64(head[:]) != checksum(head[8:]) {
		return wrong("has a head with a wrong checksum")
	}
	size := le.Uint64(head[8:])
	if size > uint64(b.file.Size()-next) {
		return wrong("has %d bytes, more than the file", size)
	}
	c = chunk{at: at, kind: head[24], count: le.Uint64(head[24:]) >> 8, decoded: le.Uint64(head[32:])}
	if uint64(cap(b.data)) < size {
		b.data = make([]byte, size)
	}
	c.data = b.data[:size]
	if _, err := b.read(c.data, next); err != nil {
		return chunk{}, err
	}
	if le.Uint64(head[16:]) != checksum(c.data) {
		return wrong("has data with a wrong checksum")
	}
	return c, nil
}

// errTransposed marks a chunk in Riegeli's undocumented second layout.
var errTransposed = errors.New("transposed")

// refuse returns the error of a file with a transposed chunk.
func (c chunk) refuse(f sources.File) error {
	return millrace.Errorf(millrace.ErrInvalid, "read %s: the chunk at byte %d is transposed, which is not read; "+
		"write the file with transpose:false, the default of ArrayRecord", f.Name(), c.at)
}

// damaged returns the error of a chunk whose checksums are right and whose content is wrong.
func damaged(format string, args ...any) error {
	return millrace.Errorf(millrace.ErrDamaged, format, args...)
}

// parts are the packed sizes and the packed records of a simple chunk.
type parts struct {
	packing       byte
	sizes, values []byte
}

func (c chunk) parts() (parts, error) {
	switch c.kind {
	case 'r':
	case 't':
		return parts{}, errTransposed
	default:
		return parts{}, damaged("it is of the kind %q and has no records", c.kind)
	}
	if len(c.data) == 0 {
		return parts{}, damaged("it is empty")
	}
	n, size := binary.Uvarint(c.data[1:])
	if size <= 0 || n > uint64(len(c.data)-1-size) {
		return parts{}, damaged("the sizes of its records end behind it")
	}
	rest := c.data[1+size:]
	return parts{packing: c.data[0], sizes: rest[:n], values: rest[n:]}, nil
}

// Limits of a chunk.
const (
	mostUnpacked = 256 << 20 // bytes of its records
	mostSizes    = 64 << 20  // bytes of their sizes
)

// records appends the `want` records of a chunk. They share the memory of the unpacker.
func (c chunk) records(u *unpacker, out [][]byte, want uint64) ([][]byte, error) {
	p, err := c.parts()
	if err != nil {
		return nil, err
	}
	if c.count != want {
		return nil, damaged("it has %d records, and the footer counts %d", c.count, want)
	}
	sizes, err := u.all(&u.sizes, p.packing, p.sizes, mostSizes)
	if err != nil {
		return nil, err
	}
	values, err := u.all(&u.values, p.packing, p.values, mostUnpacked)
	if err != nil {
		return nil, err
	}
	if want > uint64(len(sizes)) {
		return nil, damaged("it has sizes of fewer than %d records", want)
	}
	for range want {
		n, size := binary.Uvarint(sizes)
		if size <= 0 || n > uint64(len(values)) {
			return nil, damaged("its records end behind it")
		}
		out = append(out, values[:n:n])
		sizes, values = sizes[size:], values[n:]
	}
	if len(values) > 0 || len(sizes) > 0 {
		return nil, damaged("it has %d bytes behind its records", len(values)+len(sizes))
	}
	return out, nil
}
