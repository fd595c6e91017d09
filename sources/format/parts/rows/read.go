package rows

import (
	"bytes"
	"context"
	"errors"
	"io"

	"millrace"
	"millrace/sources"
)

// Records that are close together are fetched with one read.
const (
	mostGap   = 32 << 10 // bytes between two records that one read covers
	mostFetch = 1 << 20  // bytes of one read, unless a single record is longer
	mostSpare = 64 << 10 // bytes of blank lines behind a record that are fetched with it
)

// span is the stretch of a record's line, up to the next record's line.
type span struct{ start, end int64 }

// Read implements sources.Shard. Numbers ascend, so a call reads each stretch of the file once and decompresses each
// frame once.
func (s *shard) Read(ctx context.Context, numbers []uint64, fn func(sources.Record) error) error {
	if s.index == nil || !s.Seekable() {
		return millrace.Errorf(millrace.ErrInvalid, "read records of %s: no index was given, or the file only streams",
			s.f.Name())
	}
	spans := make([]span, len(numbers))
	for i, n := range numbers {
		start, end, ok := s.index.extent(n)
		if !ok {
			return s.astray(n)
		}
		spans[i] = span{start, end}
	}
	x, err := s.parser()
	if err != nil {
		return err
	}
	c, err := s.windows.take(s)
	if err != nil {
		return err
	}
	defer sources.Expect(s.f, func() []sources.Range { return s.ranges(spans) })()
	w := c.window()
	for i, n := range numbers {
		if err := ctx.Err(); err != nil {
			return err
		}
		ln, err := s.lineAt(ctx, w, spans[i:])
		if err != nil {
			return err
		}
		if err := fn(s.newRecord(x, n, ln)); err != nil {
			return err
		}
	}
	s.parsers.Put(x)
	s.windows.give(c)
	return nil
}

// ranges returns the stretches of the file that a read of spans takes.
func (s *shard) ranges(spans []span) []sources.Range {
	out := make([]sources.Range, 0, len(spans))
	for _, at := range spans {
		if s.kind == plain {
			out = append(out, sources.Range{Start: at.start, End: at.end})
			continue
		}
		for i := max(s.index.holding(at.start), 0); i < len(s.points) && s.points[i].at < at.end; i++ {
			out = append(out, sources.Range{Start: s.points[i].packed, End: s.points[i].packed + s.points[i].size})
		}
	}
	return out
}

// parser returns a parser of the shard's lines. It goes back to the shard after a read that succeeded.
func (s *shard) parser() (Parser, error) {
	if x, ok := s.parsers.Get().(Parser); ok {
		return x, nil
	}
	return s.layout.NewParser()
}

// lineAt reads the line of the first span. The others decide how far it reads ahead.
func (s *shard) lineAt(ctx context.Context, w window, spans []span) (line, error) {
	at := spans[0]
	if at.end-at.start > s.limit+mostSpare {
		return s.longAt(ctx, at)
	}
	along := at.end
	for i := 1; i < len(spans) && spans[i].start-along <= mostGap && spans[i].end-at.start <= mostFetch; i++ {
		along = max(along, spans[i].end)
	}
	if err := sources.AskRoom(ctx, at.end-at.start); err != nil {
		return line{}, err
	}
	b, err := w.fetch(at, along)
	if err != nil {
		return line{}, err
	}
	ln := line{off: at.start, raw: int64(len(b)), text: b}
	if err := s.layout.cutOff(&ln); err != nil {
		return line{}, damaged(s.f, at.start, err)
	}
	ln.long = int64(len(ln.text)) > s.limit
	if s.layout.NewCutter == nil {
		ln.text = withoutMark(ln.text, ln.off)
	}
	return ln, nil
}

// cutOff cuts the bytes behind a record off.
func (l *Layout) cutOff(ln *line) error {
	if l.NewCutter != nil {
		return cutOne(l.NewCutter(true), ln)
	}
	if i := bytes.IndexByte(ln.text, '\n'); i >= 0 {
		ln.raw, ln.text = int64(i+1), ln.text[:i]
	}
	return nil
}

// longAt reads a line as a stream. The line may be too long to keep.
func (s *shard) longAt(ctx context.Context, at span) (line, error) {
	st, err := s.open(ctx, at.start)
	if err != nil {
		return line{}, err
	}
	ln, err := st.lines(ctx, at.start, s.limit).next()
	if errors.Is(err, io.EOF) {
		err = s.gone(at.start)
	}
	ln.text = bytes.Clone(ln.text)
	st.close()
	return ln, err
}

func (s *shard) gone(off int64) error {
	return millrace.Errorf(millrace.ErrDamaged,
		"read %s at uncompressed byte %d: its index has a record there, and the file has none", s.f.Name(), off)
}

// window holds a stretch of the uncompressed file that moves forward.
type window interface {
	// fetch returns the bytes of at, valid until the next call. It may keep the bytes up to along for later calls.
	fetch(at span, along int64) ([]byte, error)
}

type plainWindow struct {
	f   sources.File
	buf []byte
	lo  int64
}

func (w *plainWindow) fetch(at span, along int64) ([]byte, error) {
	if at.start < w.lo || at.end > w.lo+int64(len(w.buf)) {
		n := along - at.start
		if n > int64(cap(w.buf)) {
			w.buf = make([]byte, n)
		}
		w.buf, w.lo = w.buf[:n], at.start
		if err := sources.ReadFull(w.f, w.buf, at.start); err != nil {
			w.buf = w.buf[:0]
			return nil, err
		}
	}
	return w.buf[at.start-w.lo : at.end-w.lo], nil
}

// frameWindow holds whole decompressed frames: those of the last record.
type frameWindow struct {
	shard  *shard
	unpack *unpacker
	buf    []byte
	lo     int64 // uncompressed byte of buf[0]
	next   int   // frame whose bytes follow buf
}

func (w *frameWindow) fetch(at span, _ int64) ([]byte, error) {
	points := w.shard.points
	i := w.shard.index.holding(at.start)
	if i < 0 {
		return nil, w.shard.gone(at.start)
	}
	if hi := w.lo + int64(len(w.buf)); i >= w.next || at.start < w.lo || points[i].at > hi {
		w.buf, w.lo, w.next = w.buf[:0], points[i].at, i
	} else if drop := points[i].at - w.lo; drop > 0 {
		w.buf = w.buf[:copy(w.buf, w.buf[drop:])]
		w.lo += drop
	}
	for w.lo+int64(len(w.buf)) < at.end {
		if w.next == len(points) || points[w.next].at != w.lo+int64(len(w.buf)) {
			return nil, w.shard.gone(at.end)
		}
		var err error
		if w.buf, err = w.unpack.unpack(w.buf, points[w.next]); err != nil {
			w.buf, w.next = w.buf[:0], 0
			return nil, err
		}
		w.next++
	}
	return w.buf[at.start-w.lo : at.end-w.lo], nil
}
