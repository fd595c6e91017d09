package rows

import (
	"context"
	"errors"
	"io"

	"millrace"
)

// cuts cuts a stream into records by a cutter, in bounded memory.
type cuts struct {
	lines  // the buffer
	file   string
	cutter Cutter
	seen   int // bytes of the buffer that the cutter saw
	ended  bool
}

func newCuts(ctx context.Context, file string, r io.Reader, c Cutter, off, limit int64, buf []byte) *cuts {
	return &cuts{file: file, lines: lines{ctx: ctx, r: r, limit: limit, off: off, buf: buf}, cutter: c}
}

// next implements cut. The bytes before a record are passed over. A record above the limit is not kept.
func (s *cuts) next() (ln line, err error) {
	inside, dropped := false, int64(0)
	s.shrink()
	for {
		n, at, err := s.cutter.Cut(s.buf[s.lo+s.seen : s.hi])
		s.seen += n
		if err != nil {
			return line{}, s.wrong(err)
		}
		switch at {
		case Begins:
			inside = true
			s.drop(s.seen)
			continue
		case Ends:
			return s.take(dropped), nil
		}
		if !inside {
			s.drop(s.seen)
		} else if dropped > 0 || int64(s.seen) > s.limit {
			dropped += int64(s.seen)
			s.drop(s.seen)
		}
		if err := s.askRoom(s.seen); err != nil {
			return line{}, err
		}
		if s.err == nil {
			s.fill()
			continue
		}
		if !errors.Is(s.err, io.EOF) {
			return line{}, s.err
		}
		if s.seen < s.hi-s.lo {
			continue
		}
		if s.ended {
			return line{}, io.EOF
		}
		s.ended = true
		if at, err = s.cutter.End(); err != nil {
			return line{}, s.wrong(err)
		}
		if at == Ends && inside {
			return s.take(dropped), nil
		}
		return line{}, io.EOF
	}
}

// drop passes over bytes of the buffer.
func (s *cuts) drop(n int) {
	s.lo += n
	s.off += int64(n)
	s.seen -= n
}

// take returns the bytes that the cutter saw as a record. dropped is the number of its bytes that were dropped.
func (s *cuts) take(dropped int64) line {
	text := s.buf[s.lo : s.lo+s.seen]
	ln := line{off: s.off - dropped, raw: dropped + int64(s.seen), text: text}
	s.drop(s.seen)
	if ln.raw > s.limit {
		ln.long, ln.text = true, nil
	}
	return ln
}

func (s *cuts) wrong(err error) error {
	return millrace.Errorf(millrace.ErrDamaged, "read %s: at uncompressed byte %d: %w", s.file,
		s.off+int64(s.seen), err)
}

// cutOne cuts the bytes behind a record off, which begins with the line's first byte.
func cutOne(c Cutter, ln *line) error {
	b, seen, isBegun := ln.text, 0, false
	for {
		n, at, err := c.Cut(b[seen:])
		if err != nil {
			return err
		}
		seen += n
		if at == None {
			if at, err = c.End(); err != nil {
				return err
			}
			isBegun = isBegun && at == Ends
		}
		switch {
		case at == Begins && seen == 0:
			isBegun = true
			continue
		case at == Ends && isBegun:
			ln.raw, ln.text = int64(seen), b[:seen]
			return nil
		}
		return errors.New("the index has a record here, and the file has none")
	}
}
