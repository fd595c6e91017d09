package tfrecord

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"

	"millrace"
	"millrace/sources"
)

// The parts of a record in the file, in bytes.
const (
	headBytes  = 12 // length and its checksum
	footBytes  = 4
	frameBytes = headBytes + footBytes
)

// masked returns the checksum of b in TensorFlow's masked form.
func masked(b []byte) uint32 {
	sum := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
	return (sum>>15 | sum<<17) + 0xa282ead8
}

// lengthOf returns the length of a record by its head. ok is false if the checksum is wrong.
func lengthOf(head []byte) (n uint64, ok bool) {
	return binary.LittleEndian.Uint64(head), masked(head[:8]) == binary.LittleEndian.Uint32(head[8:])
}

// packing is the compression of a file.
type packing int

const (
	plain packing = iota
	gzipped
	zlibbed
)

// packingOf looks at the first bytes. A right checksum shows a plain file.
func packingOf(f sources.File) (packing, error) {
	head := make([]byte, min(f.Size(), headBytes))
	if err := sources.ReadFull(f, head, 0); err != nil {
		return 0, err
	}
	if len(head) == headBytes {
		if _, ok := lengthOf(head); ok {
			return plain, nil
		}
	}
	switch {
	case len(head) >= 2 && head[0] == 0x1f && head[1] == 0x8b:
		return gzipped, nil
	case len(head) >= 2 && head[0]&0x0f == 8 && (uint(head[0])<<8|uint(head[1]))%31 == 0:
		return zlibbed, nil
	}
	return plain, nil
}

// stream reads records in file order.
type stream struct {
	name   string
	file   *sources.Reader
	in     *bufio.Reader
	packed io.Closer // nil for a plain file
	at     int64     // next byte, unpacked
	buf    []byte
}

// open begins to read at a byte of a plain file, or at the beginning of a packed one.
func (s *shard) open(at int64) (*stream, error) {
	st := &stream{name: s.file.Name(), file: sources.NewReader(s.file, at, s.file.Size()), at: at}
	switch s.packing {
	case gzipped:
		z, err := gzip.NewReader(bufio.NewReaderSize(st.file, aheadBytes))
		if err != nil {
			return nil, st.damage("cannot be unpacked: %v", err)
		}
		st.in, st.packed = bufio.NewReaderSize(z, aheadBytes), z
	case zlibbed:
		z, err := zlib.NewReader(bufio.NewReaderSize(st.file, aheadBytes))
		if err != nil {
			return nil, st.damage("cannot be unpacked: %v", err)
		}
		st.in, st.packed = bufio.NewReaderSize(z, aheadBytes), z
	default:
		st.in = bufio.NewReaderSize(st.file, aheadBytes)
	}
	return st, nil
}

func (st *stream) close() {
	if st.packed != nil {
		st.packed.Close()
	}
}

// Unpack implements sources.Unpacker.
func (s *shard) Unpack(context.Context) (io.ReadCloser, error) {
	st, err := s.open(0)
	return unpacking{st}, err
}

// unpacking has the unpacked bytes of a file.
type unpacking struct{ *stream }

// Read implements io.Reader.
func (u unpacking) Read(p []byte) (int, error) {
	n, err := u.in.Read(p)
	u.at += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		err = u.damage("cannot be unpacked: %v", err)
	}
	return n, err
}

// Close implements io.Closer.
func (u unpacking) Close() error {
	u.close()
	return nil
}

// damage returns the cause of a failed read: the error of the file, else damage at the next byte.
func (st *stream) damage(format string, args ...any) error {
	if st.file.Err() != nil {
		return st.file.Err()
	}
	unpacked := ""
	if st.packed != nil {
		unpacked = "uncompressed "
	}
	return millrace.Errorf(millrace.ErrDamaged, "read %s: the record at %sbyte %d %s", st.name, unpacked, st.at,
		fmt.Sprintf(format, args...))
}

// length reads the head of the next record. ok is false at the end of the file.
func (st *stream) length() (n uint64, ok bool, err error) {
	var head [headBytes]byte
	_, err = io.ReadFull(st.in, head[:])
	switch {
	case errors.Is(err, io.EOF) && st.file.Err() == nil:
		return 0, false, nil
	case err != nil:
		return 0, false, st.damage("ends early: %v", err)
	}
	n, ok = lengthOf(head[:])
	if !ok || n > 1<<48 {
		return 0, false, st.damage("has a length with a wrong checksum, so no later record can be found")
	}
	st.at += headBytes
	return n, true, nil
}

// skip passes over bytes.
func (st *stream) skip(n uint64) error {
	k, err := io.CopyN(io.Discard, st.in, int64(n))
	st.at += k
	if err != nil {
		return st.damage("ends early: %v", err)
	}
	return nil
}

// data returns n bytes and the checksum behind them, valid until the next call. Its memory grows with the bytes that
// are there.
func (st *stream) data(n uint64) ([]byte, error) {
	n += footBytes
	st.buf = st.buf[:0]
	for uint64(len(st.buf)) < n {
		if len(st.buf) == cap(st.buf) {
			grown := make([]byte, len(st.buf), min(n, max(aheadBytes, 2*uint64(cap(st.buf)))))
			copy(grown, st.buf)
			st.buf = grown
		}
		from := len(st.buf)
		st.buf = st.buf[:min(uint64(cap(st.buf)), n)]
		if _, err := io.ReadFull(st.in, st.buf[from:]); err != nil {
			return nil, st.damage("ends early: %v", err)
		}
	}
	st.at += int64(n)
	return st.buf, nil
}

// aheadBytes is the size of one read if records follow each other.
const aheadBytes = 256 << 10

// window keeps a stretch of a plain file.
type window struct {
	file sources.File
	buf  []byte
	lo   int64
}

// fetch returns n bytes of the file. run records of about this size are wanted in a row.
func (w *window) fetch(off, n, run int64) ([]byte, error) {
	if off < w.lo || off+n > w.lo+int64(len(w.buf)) {
		want := n
		if run > 1 {
			want = max(n, min(aheadBytes, run*max(n, 64), w.file.Size()-off))
		}
		if want > int64(cap(w.buf)) {
			w.buf = make([]byte, want)
		}
		w.buf, w.lo = w.buf[:want], off
		if err := sources.ReadFull(w.file, w.buf, off); err != nil {
			w.buf = w.buf[:0]
			return nil, err
		}
	}
	return w.buf[off-w.lo:][:n], nil
}
