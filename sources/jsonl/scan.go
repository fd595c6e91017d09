package jsonl

import (
	"context"
	"errors"
	"fmt"
	"io"

	"millrace"
	"millrace/sources"
)

// Scan implements sources.Shard. With an index it begins at the record asked for or the restart point before it.
func (s *shard) Scan(ctx context.Context, from uint64, fn func(sources.Record) error) error {
	x, err := newFields(s.field)
	if err != nil {
		return err
	}
	number, off := uint64(0), int64(0)
	if s.index != nil {
		if from >= s.index.count {
			return ctx.Err()
		}
		if s.Seekable() {
			var ok bool
			if off, ok = s.index.start(from); !ok {
				return s.astray(from)
			}
			number = from
		}
	}
	st, err := s.open(ctx, off)
	if err != nil {
		return err
	}
	defer st.close()
	ls := newLines(st, off, s.limit)
	if off == 0 {
		if err := s.refuseDocument(ls.head()); err != nil {
			return err
		}
	}
	for ; ; number++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		ln, err := ls.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if number < from {
			continue
		}
		if err := fn(s.record(x, number, ln)); err != nil {
			return err
		}
	}
}

// Index implements sources.Shard: one pass over the line ends.
func (s *shard) Index(ctx context.Context, progress func(bytes int64)) ([]byte, error) {
	st, err := s.open(ctx, 0)
	if err != nil {
		return nil, err
	}
	defer st.close()
	var b indexBuilder
	if st.frames != nil {
		st.frames.tell = progress
		st.frames.entered = func(frame int, before int64) {
			p := s.points[frame]
			p.at = before
			b.point(p)
		}
	} else if progress != nil {
		st.file.Progress(progress)
	}
	ls := newLines(st, 0, s.limit)
	if err := s.refuseDocument(ls.head()); err != nil {
		return nil, err
	}
	for {
		if b.count%pageRecords == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		ln, err := ls.next()
		if errors.Is(err, io.EOF) {
			return b.blob(s.kind, s.f.Size(), ls.off), nil
		}
		if err != nil {
			return nil, err
		}
		b.record(ln.off)
	}
}

// record makes of a line what the feed gets.
func (s *shard) record(x *fields, number uint64, ln line) sources.Record {
	r := sources.Record{Number: number, Offset: ln.off, Raw: ln.raw}
	if ln.long {
		r.Err = bad("the line is longer than sample_bytes, %d", s.limit)
		return r
	}
	x.record(&r, ln.text)
	return r
}

func (s *shard) astray(number uint64) error {
	return millrace.Errorf(millrace.ErrMismatch, "find record %d of %s: its index does not fit the file", number, s.f.Name())
}

// stream is the uncompressed file from some byte on.
type stream struct {
	io.Reader
	file   *sources.Reader // nil where frames is set
	frames *frameStream    // nil where the file is not read by frames
	close  func()
}

// open begins a stream at an uncompressed byte; without an index, or where the file only streams, that has to be 0.
func (s *shard) open(ctx context.Context, off int64) (*stream, error) {
	none := func() {}
	switch s.kind {
	case bgzf, zstdFrames:
		return s.openFrames(ctx, off)
	case gzipOnly:
		raw := sources.NewReader(s.f, 0, s.f.Size())
		return &stream{Reader: newGzipStream(s.f, raw), file: raw, close: none}, nil
	case zstdOnly:
		raw := sources.NewReader(s.f, 0, s.f.Size())
		z, err := newZstdStream(s.f, raw)
		if err != nil {
			return nil, err
		}
		return &stream{Reader: z, file: raw, close: z.Close}, nil
	}
	raw := sources.NewReader(s.f, off, s.f.Size())
	return &stream{Reader: raw, file: raw, close: none}, nil
}

func (s *shard) openFrames(ctx context.Context, off int64) (*stream, error) {
	points, skip := s.points, int64(0)
	if off > 0 {
		i := s.index.holding(off)
		if i < 0 {
			return nil, millrace.Errorf(millrace.ErrMismatch, "find byte %d of %s: its index does not fit the file", off, s.f.Name())
		}
		points, skip = points[i:], off-points[i].at
	}
	u, err := newUnpacker(s.f, s.kind)
	if err != nil {
		return nil, err
	}
	fs := &frameStream{ctx: ctx, unpack: u, points: points}
	if _, err := io.CopyN(io.Discard, fs, skip); err != nil {
		u.close()
		return nil, fmt.Errorf("find byte %d of %s: %w", off, s.f.Name(), err)
	}
	return &stream{Reader: fs, frames: fs, close: u.close}, nil
}
