// Package extents reads records that are stretches of bytes at known places of a file.
//
// Formats with a table of offsets embed a [Shard]. They bring the table and a [Decoder] of a record's bytes.
package extents

import (
	"context"
	"errors"
	"io"
	"sync"

	"millrace"
	"millrace/sources"
)

// Table has the places of a shard's records. It is immutable.
type Table interface {
	// Count returns the number of records.
	Count() uint64
	// Extent returns the first byte of record n and the byte behind its last one. Extents ascend and are inside the
	// file.
	Extent(n uint64) (start, end int64)
	// Memory returns the bytes that the table takes.
	Memory() int64
}

// Decoder makes the content of records of their bytes. One goroutine uses it.
type Decoder interface {
	// Decode sets the content of the record at start … end of the window's file, or Err. The content may refer to
	// memory of the window and of the decoder until the next call. The window holds the whole record, unless it is long
	// and has no limit.
	Decode(r *sources.Record, w *Window, start, end int64) error
}

// Shard is one open file whose records have known places. Its methods may be called concurrently.
type Shard struct {
	File  sources.File
	Table Table
	Limit int64 // bytes of a record; a longer one is quarantined. 0: the decoder limits the bytes that it needs
	// Stream opens the bytes of the records from the beginning; nil: they are those of File. With it, the shard only
	// streams.
	Stream func() (io.ReadCloser, error)
	Names  []string // of the fields that can be read, each once; nil: they have none
	// New makes a decoder. The shard keeps decoders of reads that succeeded for later ones.
	New func() Decoder

	pool sync.Pool // of *reader
}

var (
	_ sources.Shard = (*Shard)(nil)
	_ sources.Sized = (*Shard)(nil)
	_ sources.Named = (*Shard)(nil)

	_ sources.Unpacker = (*Shard)(nil)
)

// Unpack implements sources.Unpacker.
func (s *Shard) Unpack(context.Context) (io.ReadCloser, error) { return s.Stream() }

// FieldNames implements sources.Named.
func (s *Shard) FieldNames(context.Context) ([]string, error) { return s.Names, nil }

// Count implements sources.Shard.
func (s *Shard) Count() (uint64, bool) { return s.Table.Count(), true }

// Abilities implements sources.Shard.
func (s *Shard) Abilities() sources.Abilities {
	return sources.Abilities{Packed: s, Names: s, Memory: s}
}

// Seekable implements sources.Shard.
func (s *Shard) Seekable() bool { return s.Stream == nil }

// Index implements sources.Shard. The table takes the place of an index.
func (s *Shard) Index(ctx context.Context, _ func(int64)) ([]byte, error) { return nil, ctx.Err() }

// Memory implements sources.Sized.
func (s *Shard) Memory() int64 { return 1<<10 + s.Table.Memory() }

// Close implements io.Closer. The caller of Open closes the file.
func (s *Shard) Close() error { return nil }

// Scan implements sources.Shard.
func (s *Shard) Scan(ctx context.Context, from uint64, fn func(sources.Record) error) error {
	if s.Stream != nil {
		return s.stream(ctx, from, fn)
	}
	r := s.Reader()
	count := s.Table.Count()
	_, behind := s.last(count)
	for n := from; n < count; n++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		start, end := s.Table.Extent(n)
		if err := r.One(n, start, end, min(behind, start+scanBytes), fn); err != nil {
			return err
		}
	}
	r.Close()
	return ctx.Err()
}

func (s *Shard) last(count uint64) (start, end int64) {
	if count == 0 {
		return 0, 0
	}
	return s.Table.Extent(count - 1)
}

// Records that are close together are fetched with one read.
const (
	scanBytes = 256 << 10 // of one read of a scan
	mostGap   = 32 << 10  // bytes between two records that one read covers
	mostFetch = 1 << 20   // bytes of one read, unless a single record is longer
	mostSpare = 1 << 20   // bytes of memory that is kept for later reads
)

// Read implements sources.Shard.
func (s *Shard) Read(ctx context.Context, numbers []uint64, fn func(sources.Record) error) error {
	r, count := s.Reader(), s.Table.Count()
	defer sources.Expect(s.File, func() []sources.Range { return s.ranges(numbers) })()
	for i, n := range numbers {
		if err := ctx.Err(); err != nil {
			return err
		}
		if n >= count {
			return millrace.Errorf(millrace.ErrInvalid, "read record %d of %s: it has %d", n, s.File.Name(), count)
		}
		start, end := s.Table.Extent(n)
		along := end
		if !r.window.Holds(start, end) {
			for _, next := range numbers[i+1:] {
				if next >= count {
					break
				}
				lo, hi := s.Table.Extent(next)
				if lo-along > mostGap || hi-start > mostFetch {
					break
				}
				along = max(along, hi)
			}
		}
		if err := r.One(n, start, end, along, fn); err != nil {
			return err
		}
	}
	r.Close()
	return nil
}

// ranges returns the stretches of the file that a read of records takes, but those whose decoder fetches a part.
func (s *Shard) ranges(numbers []uint64) []sources.Range {
	out := make([]sources.Range, 0, len(numbers))
	for _, n := range numbers {
		if n >= s.Table.Count() {
			break
		}
		if start, end := s.Table.Extent(n); s.Limit > 0 && end-start <= s.Limit || end-start <= scanBytes {
			out = append(out, sources.Range{Start: start, End: end})
		}
	}
	return out
}

// Reader has the memory of one read or scan. One goroutine uses it.
type Reader struct {
	shard   *Shard
	window  Window
	decoder Decoder
}

// Reader returns memory for a read. The caller closes it if the read succeeds.
func (s *Shard) Reader() *Reader {
	if r, ok := s.pool.Get().(*Reader); ok {
		return r
	}
	return &Reader{shard: s, window: Window{File: s.File}, decoder: s.New()}
}

// Close keeps the memory for later reads.
func (r *Reader) Close() {
	if cap(r.window.buf) > mostSpare {
		r.window.buf = nil
	}
	r.shard.pool.Put(r)
}

// One passes record n at start … end to fn. It may fetch the bytes up to along.
func (r *Reader) One(n uint64, start, end, along int64, fn func(sources.Record) error) error {
	rec := sources.Record{Number: n, Offset: start, Raw: end - start}
	limit := r.shard.Limit
	if limit > 0 && rec.Raw > limit {
		rec.Err = millrace.Errorf(millrace.ErrBadSample, "the record is longer than sample_bytes, %d", limit)
		return fn(rec)
	}
	if limit > 0 || rec.Raw <= scanBytes {
		if _, err := r.window.Fetch(start, end, along); err != nil {
			return err
		}
	}
	if err := Decode(r.decoder, &rec, &r.window, start, end); err != nil {
		return err
	}
	return fn(rec)
}

// Decode lets a decoder set the content of a record. A bad record has none.
func Decode(d Decoder, rec *sources.Record, w *Window, start, end int64) error {
	if err := d.Decode(rec, w, start, end); err != nil {
		return err
	}
	var missing *sources.MissingError
	if rec.Err != nil {
		rec.Text, rec.Tokens = nil, nil
		if !errors.As(rec.Err, &missing) {
			rec.Others = nil
		}
	}
	return nil
}

// Window holds a stretch of a file.
type Window struct {
	File   sources.File
	stream io.Reader // the unpacked file from behind buf on; nil: the file is read at random
	hold   int64     // a stream keeps the bytes from here on; -1: only those that are fetched
	buf    []byte
	lo     int64
}

// Holds reports whether the window has the bytes of start … end.
func (w *Window) Holds(start, end int64) bool { return start >= w.lo && end <= w.lo+int64(len(w.buf)) }

// Fetch returns the bytes of start … end, valid until the next call. If it has to read, it reads and keeps the bytes up
// to along.
func (w *Window) Fetch(start, end, along int64) ([]byte, error) {
	switch {
	case w.Holds(start, end):
	case w.stream != nil:
		if err := w.advance(start, end); err != nil {
			return nil, err
		}
	default:
		n := max(end, along) - start
		if n > int64(cap(w.buf)) {
			w.buf = make([]byte, n)
		}
		w.buf, w.lo = w.buf[:n], start
		if err := sources.ReadFull(w.File, w.buf, start); err != nil {
			w.buf = w.buf[:0]
			return nil, err
		}
	}
	return w.buf[start-w.lo : end-w.lo : end-w.lo], nil
}
