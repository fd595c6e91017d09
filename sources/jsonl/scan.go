package jsonl

import (
	"context"
	"errors"
	"io"

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
			if off, ok = s.index.startOf(from); !ok {
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
		if err := refuseDocument(s.f, ls.peek()); err != nil {
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
		if err := fn(s.newRecord(x, number, ln)); err != nil {
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
			b.addPoint(p)
		}
	} else if progress != nil {
		st.file.Progress(progress)
	}
	ls := newLines(st, 0, s.limit)
	if err := refuseDocument(s.f, ls.peek()); err != nil {
		return nil, err
	}
	for {
		if b.count%pageRecords == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		ln, err := ls.next()
		if errors.Is(err, io.EOF) {
			return b.encode(s.kind, s.f.Size(), ls.off), nil
		}
		if err != nil {
			return nil, err
		}
		b.addRecord(ln.off)
	}
}
