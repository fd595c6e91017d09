// Package packed unpacks files that are packed as a whole, from beginning to end: zstd, gzip, bzip2, xz, brotli, and a
// raw block of Snappy.
package packed

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"millrace"
	"millrace/sources"
)

// Kind is a way in which a file is packed.
type Kind string

// The kinds. Plain is no packing.
const (
	Plain  Kind = ""
	Zstd   Kind = "zstd"
	Gzip   Kind = "gzip"
	Bzip2  Kind = "bzip2"
	XZ     Kind = "xz"
	Brotli Kind = "brotli"
	Snappy Kind = "snappy"
)

// KindOf returns the kind that the ending of a file's name shows. Brotli and Snappy have no first bytes of their own.
// The copy of a packed file is plain.
func KindOf(f sources.File) Kind {
	if sources.IsUnpacked(f) {
		return Plain
	}
	for _, k := range []struct {
		ending string
		kind   Kind
	}{
		{".zstd", Zstd}, {".zst", Zstd}, {".gz", Gzip}, {".tgz", Gzip}, {".bz2", Bzip2}, {".br", Brotli},
		{".snappy", Snappy},
	} {
		if strings.HasSuffix(strings.ToLower(f.Name()), k.ending) {
			return k.kind
		}
	}
	return Plain
}

// KindShown returns the kind that the first bytes of a file show. No text begins as a file of these kinds does: bzip2
// has its magic number in two places.
func KindShown(head []byte) Kind {
	if len(head) >= 4 && head[0]>>4 == 5 && string(head[1:4]) == "\x2a\x4d\x18" {
		return Zstd // a skippable frame, with which parallel writers begin
	}
	for _, k := range []struct {
		begins, goesOn string
		at             int // of goesOn
		kind           Kind
	}{
		{"\x28\xb5\x2f\xfd", "", 0, Zstd}, {"\x1f\x8b", "", 0, Gzip}, {"\xfd7zXZ\x00", "", 0, XZ},
		{"BZh", "1AY&SY", 4, Bzip2}, {"BZh", "\x17rE8P\x90", 4, Bzip2}, // a block, or the end of an empty file
	} {
		if bytes.HasPrefix(head, []byte(k.begins)) && len(head) >= k.at &&
			bytes.HasPrefix(head[k.at:], []byte(k.goesOn)) {
			return k.kind
		}
	}
	return Plain
}

// mostWindow bounds the bytes behind it to which a zstd stream may refer. It is that of `zstd --ultra --long=27`.
const mostWindow = 128 << 20

// Reader reads the unpacked bytes of a file. An error of packed bytes is millrace.ErrDamaged and names the byte
// reached. The decoder of Brotli takes the end of the file for the end of its data, so the caller knows how many bytes
// to expect.
type Reader struct {
	file sources.File
	raw  *sources.Reader
	in   *bufio.Reader
	out  io.Reader
	zstd *zstd.Decoder
	err  error // of the file itself
}

// NewReader returns the unpacked bytes of a file. The caller closes it.
func NewReader(f sources.File, kind Kind) (*Reader, error) {
	r := &Reader{file: f, raw: sources.NewReader(f, 0, f.Size())}
	r.in = bufio.NewReaderSize(input{r}, 64<<10)
	var err error
	switch kind {
	case Zstd:
		r.zstd, err = zstd.NewReader(r.in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(mostWindow))
		r.out = r.zstd
	case Gzip:
		r.out, err = gzip.NewReader(r.in)
	case Bzip2:
		r.out = bzip2.NewReader(r.in)
	case XZ:
		if err := CheckXZ(f); err != nil {
			return nil, err
		}
		r.out, err = NewXZ(f, r.in)
	case Brotli:
		r.out = brotli.NewReader(r.in)
	case Snappy:
		r.out = &snappyReader{in: r.in}
	}
	if err != nil {
		return nil, r.fail(err)
	}
	return r, nil
}

// input passes the bytes of the file to the decoder, and notes an error of the file.
type input struct{ r *Reader }

// Read implements io.Reader.
func (in input) Read(p []byte) (int, error) {
	n, err := in.r.raw.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		in.r.err = err
	}
	return n, err
}

// Read implements io.Reader.
func (r *Reader) Read(p []byte) (int, error) {
	n, err := r.out.Read(p)
	switch {
	case err == nil:
		return n, nil
	case !errors.Is(err, io.EOF):
		return n, r.fail(err)
	}
	if _, more := r.in.ReadByte(); !errors.Is(more, io.EOF) {
		return n, r.fail(errors.New("bytes follow the packed data"))
	}
	return n, io.EOF
}

// fail returns the user's error for a decoder's error.
func (r *Reader) fail(err error) error {
	switch {
	case r.err != nil:
		return r.err
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		err = errors.New("the file ends inside its packed data")
	}
	return millrace.Errorf(millrace.ErrDamaged, "unpack %s at byte %d: %w", r.file.Name(),
		r.raw.Offset()-int64(r.in.Buffered()), err)
}

// Close frees the decoder.
func (r *Reader) Close() error {
	if r.zstd != nil {
		r.zstd.Close()
	}
	return nil
}

// snappyReader unpacks a raw block of Snappy: the uvarint length of the unpacked bytes, then literals and copies. The
// usual writers of such blocks copy from at most 64 KiB before; some copy from farther.
type snappyReader struct {
	in    *bufio.Reader
	begun bool
	left  uint64 // unpacked bytes after buf
	buf   []byte // the last ones
	next  int    // of buf, not yet read
}

// snappyReach is the largest distance of a copy.
const snappyReach = 1 << 20

// Read implements io.Reader.
func (s *snappyReader) Read(p []byte) (int, error) {
	if !s.begun {
		var err error
		if s.left, err = readUvarint(s.in); err != nil {
			return 0, err
		}
		s.begun = true
	}
	for s.next == len(s.buf) {
		if s.left == 0 {
			return 0, io.EOF
		}
		if err := s.element(); err != nil {
			return 0, noEOF(err)
		}
	}
	n := copy(p, s.buf[s.next:])
	s.next += n
	return n, nil
}

// element unpacks one literal or copy.
func (s *snappyReader) element() error {
	if len(s.buf) >= 2*snappyReach {
		s.buf = s.buf[:copy(s.buf, s.buf[len(s.buf)-snappyReach:])]
		s.next = len(s.buf)
	}
	tag, err := s.in.ReadByte()
	if err != nil {
		return err
	}
	length, offset := uint64(tag>>2)+1, uint64(0)
	switch tag & 3 {
	case 0:
		return s.literal(length)
	case 1:
		length = uint64(tag>>2&7) + 4
		low, err := s.number(1)
		if err != nil {
			return err
		}
		offset = uint64(tag>>5)<<8 | low
	case 2:
		offset, err = s.number(2)
	case 3:
		offset, err = s.number(4)
	}
	if err != nil {
		return err
	}
	if offset == 0 || offset > min(uint64(len(s.buf)), snappyReach) || length > s.left {
		return fmt.Errorf("a copy of %d bytes from %d bytes before leads outside", length, offset)
	}
	s.left -= length
	for range length {
		s.buf = append(s.buf, s.buf[uint64(len(s.buf))-offset])
	}
	return nil
}

// literalPart is the memory that a literal takes at once.
const literalPart = 64 << 10

// literal unpacks bytes as they are, in parts. A length from 61 on says how many bytes the true length has.
func (s *snappyReader) literal(length uint64) error {
	if length > 60 {
		n, err := s.number(int(length - 60))
		if err != nil {
			return err
		}
		length = n + 1
	}
	if length > s.left {
		return fmt.Errorf("a literal of %d bytes is longer than the rest, %d", length, s.left)
	}
	s.left -= length
	for length > 0 {
		n := int(min(length, literalPart))
		at := len(s.buf)
		s.buf = append(s.buf, make([]byte, n)...)
		if _, err := io.ReadFull(s.in, s.buf[at:]); err != nil {
			return err
		}
		length -= uint64(n)
	}
	return nil
}

// number reads a little-endian number of the given size in bytes.
func (s *snappyReader) number(bytes int) (n uint64, err error) {
	for i := range bytes {
		b, err := s.in.ReadByte()
		if err != nil {
			return 0, err
		}
		n |= uint64(b) << (8 * i)
	}
	return n, nil
}

// readUvarint reads a number of at most 32 bits.
func readUvarint(in io.ByteReader) (n uint64, err error) {
	for shift := 0; shift < 35; shift += 7 {
		b, err := in.ReadByte()
		if err != nil {
			return 0, noEOF(err)
		}
		n |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return n, nil
		}
	}
	return 0, errors.New("the length of the unpacked data is no number")
}

// noEOF returns the error of data that end early.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
