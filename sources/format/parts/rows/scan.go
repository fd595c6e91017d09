package rows

import (
	"context"
	"errors"
	"io"

	"millrace/sources"
)

// Scan implements sources.Shard. With an index it begins at the record asked for or the restart point before it.
func (s *shard) Scan(ctx context.Context, from uint64, fn func(sources.Record) error) error {
	number, off := uint64(0), int64(0)
	if s.index != nil {
		if from >= s.index.count {
			return ctx.Err()
		}
		if s.Seekable() {
			var ok bool
			if off, ok = s.index.startOf(from); !ok {
				return s.astray(from)
			}
			number = from
		}
	}
	x, err := s.parser()
	if err != nil {
		return err
	}
	st, err := s.open(ctx, off)
	if err != nil {
		return err
	}
	err = s.scanLines(ctx, st.lines(ctx, off, s.limit), number, func(n uint64, ln line) error {
		if n < from {
			return nil
		}
		return fn(s.newRecord(x, n, ln))
	})
	st.close()
	s.parsers.Put(x)
	return err
}

// scanLines passes the lines from the record `number` on to fn. Offset 0 is the start of the file.
func (s *shard) scanLines(ctx context.Context, ls cut, number uint64, fn func(uint64, line) error) error {
	if ls.offset() == 0 && s.layout.Refuse != nil {
		if err := s.layout.Refuse(s.f, ls.peek()); err != nil {
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
		if err := fn(number, ln); err != nil {
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
	var b indexBuilder
	if st.frames != nil {
		st.frames.tell = progress
		st.frames.entered = func(frame int, before int64) {
			p := s.points[frame]
			p.at = before
			b.addPoint(p)
		}
	} else if progress != nil {
		st.file.Progress(progress)
	}
	ls := st.lines(ctx, 0, s.limit)
	err = s.scanLines(ctx, ls, 0, func(_ uint64, ln line) error {
		b.addRecord(ln.off)
		return nil
	})
	st.close()
	if err != nil {
		return nil, err
	}
	return b.encode(s.kind, s.f.Size(), ls.offset()), nil
}
