package rows

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"millrace"
	"millrace/sources"
)

// frameBytes is the largest uncompressed size of a frame at which reading can restart. It bounds the cost of a random
// read of one record.
const frameBytes = 4 << 20

// mostWindow is the largest window of a zstd frame that is read, in bytes. The zstd command refuses larger ones by
// default, too. A larger window would take memory that no setting allows.
const mostWindow = 128 << 20

// windowError is the reason why a whole zstd frame is not read.
type windowError struct{ bytes int64 }

func (e *windowError) Error() string {
	return fmt.Sprintf("its zstd window has %d MiB, at most %d MiB are read; "+
		"compress the file again without --long, or with --long=27", (e.bytes+1<<20-1)>>20, mostWindow>>20)
}

// damaged returns the error of a compressed file that cannot be read on. off is the byte that was reached in the file,
// not in its content.
func damaged(f sources.File, off int64, cause error) error {
	var window *windowError
	switch {
	case errors.Is(cause, millrace.ErrDamaged):
		return cause
	case errors.As(cause, &window):
		return millrace.Errorf(millrace.ErrInvalid, "decompress %s: at byte %d: %w", f.Name(), off, window)
	}
	return millrace.Errorf(millrace.ErrDamaged, "decompress %s: at byte %d of %d: %w", f.Name(), off, f.Size(), cause)
}

// point is a restart point: a BGZF member or a zstd frame, at which decompression can begin.
type point struct {
	packed int64 // byte of the file
	size   int64 // bytes in the file
	at     int64 // its first uncompressed byte; known once the file is indexed
}

// unpacker decompresses single frames. It is not safe for concurrent use.
type unpacker struct {
	f      sources.File
	kind   kind
	packed []byte
	gz     gzip.Reader
	dec    *zstd.Decoder
}

// assign makes the unpacker read another file.
func (u *unpacker) assign(f sources.File, k kind) error {
	u.f, u.kind = f, k
	if (k == zstdFrames || k == zstdOnly) && u.dec == nil {
		dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(mostWindow), zstd.WithDecoderMaxMemory(mostWindow))
		if err != nil {
			return fmt.Errorf("decompress %s: %w", f.Name(), err)
		}
		u.dec = dec
	}
	return nil
}

func (u *unpacker) close() {
	if u.dec != nil {
		u.dec.Close()
		u.dec = nil
	}
}

// unpack appends the content of the frame, at most frameBytes.
func (u *unpacker) unpack(out []byte, p point) ([]byte, error) {
	if p.size > int64(cap(u.packed)) {
		u.packed = make([]byte, p.size)
	}
	u.packed = u.packed[:p.size]
	if err := sources.ReadFull(u.f, u.packed, p.packed); err != nil {
		return out, err
	}
	if u.kind == zstdFrames {
		had := len(out)
		out, err := u.dec.DecodeAll(u.packed, out)
		if err == nil && len(out)-had > frameBytes {
			err = errors.New("it holds more than it declares")
		}
		if err != nil {
			return out, damaged(u.f, p.packed, fmt.Errorf("zstd frame: %w", err))
		}
		return out, nil
	}
	in := bytes.NewReader(u.packed)
	if err := u.gz.Reset(in); err != nil {
		return out, damaged(u.f, p.packed, err)
	}
	u.gz.Multistream(false)
	buf := bytes.NewBuffer(out)
	n, err := buf.ReadFrom(io.LimitReader(&u.gz, bgzfMember+1))
	if err == nil && (n > bgzfMember || in.Len() > 0) {
		err = errors.New("BGZF member does not have the size it declares")
	}
	if err != nil {
		return buf.Bytes(), damaged(u.f, p.packed, err)
	}
	return buf.Bytes(), nil
}

// frameStream reads frames one after another.
type frameStream struct {
	ctx    context.Context
	unpack *unpacker
	points []point
	buf    []byte
	rest   []byte
	// entered, if set, gets each frame and the number of uncompressed bytes before it, counted from the stream's start.
	entered func(frame int, before int64)
	frame   int
	before  int64
	tell    func(bytes int64)
}

// Read implements io.Reader.
func (s *frameStream) Read(p []byte) (int, error) {
	for len(s.rest) == 0 {
		if s.frame == len(s.points) {
			return 0, io.EOF
		}
		if err := s.ctx.Err(); err != nil {
			return 0, err
		}
		pt := s.points[s.frame]
		out, err := s.unpack.unpack(s.buf[:0], pt)
		if err != nil {
			return 0, err
		}
		if s.entered != nil {
			s.entered(s.frame, s.before)
		}
		if s.tell != nil {
			s.tell(pt.packed + pt.size)
		}
		s.buf, s.rest = out, out
		s.before += int64(len(out))
		s.frame++
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}
