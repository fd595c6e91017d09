package rows

import (
	"bytes"
	"context"
	"errors"
	"io"

	"millrace/sources"
)

// bufferBytes is the first size of a stream's buffer. Longer lines make it grow, up to the limit.
const bufferBytes = 256 << 10

// headBytes is the number of first bytes that decide a file's packing and whether it holds JSON lines.
const headBytes = 64

// mostEmptyReads is the number of empty reads after which a reader counts as stuck.
const mostEmptyReads = 100

// line is one line that is a record: it has more than space, tab and CR.
type line struct {
	off  int64  // its first uncompressed byte
	raw  int64  // bytes with its LF, if it has one
	text []byte // without LF, and without a byte order mark at offset 0; valid until the next call; nil if long
	long bool   // more bytes than the limit, LF not counted
}

// lines cuts a stream into lines in bounded memory. A line ends at LF alone.
type lines struct {
	ctx    context.Context // of the walk to which the records belong
	r      io.Reader
	limit  int64
	off    int64 // uncompressed byte of buf[lo]
	buf    []byte
	lo, hi int
	err    error // of the reader, once it failed; io.EOF at its end
}

// cut cuts a stream into records.
type cut interface {
	// peek returns the first bytes of the stream. It is called before next.
	peek() []byte
	// next returns the next record, or io.EOF. Its text is valid until the next call.
	next() (line, error)
	// offset returns the uncompressed byte behind the last record.
	offset() int64
}

func (s *lines) offset() int64 { return s.off }

// newLines returns the lines of r. Byte off of the uncompressed file is the first of r and begins a line. The buffer
// has bufferBytes.
func newLines(ctx context.Context, r io.Reader, off, limit int64, buf []byte) *lines {
	return &lines{ctx: ctx, r: r, off: off, limit: limit, buf: buf}
}

// peek returns the first bytes of the stream, at least headBytes unless it is shorter. It is called before next.
func (s *lines) peek() []byte {
	for s.err == nil && s.hi-s.lo < headBytes {
		s.fill()
	}
	return s.buf[s.lo:s.hi]
}

// next returns the line of the next record, or io.EOF. An error of the reader takes the place of the line that it cut
// off.
func (s *lines) next() (line, error) {
	for {
		ln, err := s.nextLine()
		if err != nil || ln.long || !blank(ln.text) {
			return ln, err
		}
	}
}

// nextLine returns the next line, blank ones too. A blank line is never long.
func (s *lines) nextLine() (line, error) {
	s.shrink()
	for seen := 0; ; {
		if i := bytes.IndexByte(s.buf[s.lo+seen:s.hi], '\n'); i >= 0 {
			return s.cut(seen+i, 1), nil
		}
		seen = s.hi - s.lo
		if int64(seen) > s.limit {
			return s.passLong()
		}
		if err := s.askRoom(seen); err != nil {
			return line{}, err
		}
		if s.err == nil {
			s.fill()
		}
		if s.hi-s.lo > seen {
			continue
		}
		if !errors.Is(s.err, io.EOF) || seen == 0 {
			return line{}, s.err
		}
		return s.cut(seen, 0), nil
	}
}

// cut takes n bytes as a line. end is the number of bytes of its LF in the buffer.
func (s *lines) cut(n, end int) line {
	text := s.buf[s.lo : s.lo+n]
	ln := line{off: s.off, raw: int64(n + end), text: withoutMark(text, s.off)}
	s.lo += n + end
	s.off += ln.raw
	if int64(n) > s.limit && !blank(ln.text) {
		ln.long, ln.text = true, nil
	}
	return ln
}

// passLong reads to the end of a line without keeping it.
func (s *lines) passLong() (line, error) {
	ln := line{off: s.off}
	isBlank := true
	for {
		part := s.buf[s.lo:s.hi]
		i := bytes.IndexByte(part, '\n')
		if i >= 0 {
			part = part[:i]
		}
		isBlank = isBlank && blank(withoutMark(part, s.off))
		ln.raw += int64(len(part))
		s.lo += len(part)
		s.off += int64(len(part))
		if i >= 0 {
			s.lo++
			s.off++
			ln.raw++
			break
		}
		if s.err == nil {
			s.fill()
		}
		if s.hi == s.lo {
			if !errors.Is(s.err, io.EOF) {
				return line{}, s.err
			}
			break
		}
	}
	ln.long = !isBlank
	return ln, nil
}

// fill makes room in the buffer and reads into it, or sets err.
func (s *lines) fill() {
	if s.lo > 0 {
		s.hi = copy(s.buf, s.buf[s.lo:s.hi])
		s.lo = 0
	}
	if s.hi == len(s.buf) {
		grown := make([]byte, min(2*int64(len(s.buf)), max(s.limit, int64(len(s.buf)))+bufferBytes))
		copy(grown, s.buf)
		s.buf = grown
	}
	for range mostEmptyReads {
		n, err := s.r.Read(s.buf[s.hi:])
		s.hi += n
		if s.err = err; n > 0 || err != nil {
			return
		}
	}
	s.err = io.ErrNoProgress
}

// askRoom waits for room for a record. seen is the number of its bytes that were read.
func (s *lines) askRoom(seen int) error {
	if seen <= sources.LargeBytes {
		return nil
	}
	return sources.AskRoom(s.ctx, s.limit)
}

// shrink gives back the memory of a large record that was passed on.
func (s *lines) shrink() {
	if len(s.buf) > 2*sources.LargeBytes && s.hi-s.lo < bufferBytes {
		s.buf, s.lo, s.hi = append(make([]byte, 0, bufferBytes), s.buf[s.lo:s.hi]...)[:bufferBytes], 0, s.hi-s.lo
	}
}

// withoutMark drops the byte order mark that some programs write before the first line.
func withoutMark(text []byte, off int64) []byte {
	if off == 0 {
		return bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	}
	return text
}

func blank(text []byte) bool {
	for _, c := range text {
		if c != ' ' && c != '\t' && c != '\r' {
			return false
		}
	}
	return true
}
