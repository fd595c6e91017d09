package extents

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"millrace"
	"millrace/sources"
)

// stream scans a shard that only streams.
func (s *Shard) stream(ctx context.Context, from uint64, fn func(sources.Record) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	unpacked, err := s.Stream()
	if err != nil {
		return err
	}
	defer unpacked.Close()
	r := s.Reader()
	r.window = Window{File: s.File, stream: unpacked, hold: -1, buf: r.window.buf[:0]}
	count := s.Table.Count()
	for n := from; n < count; n++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		start, end := s.Table.Extent(n)
		if err := r.One(n, start, end, end, fn); err != nil {
			return err
		}
	}
	if from < count {
		_, end := s.last(count)
		if err := r.window.atEnd(end); err != nil {
			return err
		}
	}
	r.window.stream, r.window.buf = nil, r.window.buf[:0]
	r.Close()
	return ctx.Err()
}

// NewStream returns a window over the unpacked bytes of a file, which it reads from beginning to end.
func NewStream(f sources.File, unpacked io.Reader) *Window {
	return &Window{File: f, stream: unpacked, hold: -1}
}

// Hold lets the window of a stream keep the bytes from a place on, -1: only those that are fetched.
func (w *Window) Hold(from int64) { w.hold = from }

// advance reads on until the window holds start … end. The window never goes back behind the bytes that it keeps.
func (w *Window) advance(start, end int64) error {
	if start < w.lo {
		return fmt.Errorf("read %s at byte %d: the stream is at byte %d", w.File.Name(), start, w.lo)
	}
	if w.hold >= w.lo && w.hold < start {
		start = w.hold
	}
	if behind := w.lo + int64(len(w.buf)); start > behind {
		w.buf = w.buf[:0]
		n, err := io.CopyN(io.Discard, w.stream, start-behind)
		if w.lo = behind + n; err != nil {
			return w.early(err)
		}
	} else {
		w.buf = w.buf[:copy(w.buf, w.buf[start-w.lo:])]
		w.lo = start
	}
	held, want := len(w.buf), int(end-start)
	for held < want {
		// the memory grows with the bytes that are there
		part := min(want-held, max(held, scanBytes))
		w.buf = slices.Grow(w.buf, part)[:held+part]
		n, err := io.ReadFull(w.stream, w.buf[held:])
		if held += n; err != nil {
			w.buf = w.buf[:held]
			return w.early(err)
		}
	}
	return nil
}

// Ended reports whether a stream ends at a place.
func (w *Window) Ended(at int64) (bool, error) {
	if err := w.advance(at, at); err != nil || w.lo+int64(len(w.buf)) > at {
		return false, err
	}
	behind := len(w.buf)
	w.buf = slices.Grow(w.buf, 1)[:behind+1]
	n, err := io.ReadFull(w.stream, w.buf[behind:])
	w.buf = w.buf[:behind+n]
	if errors.Is(err, io.EOF) {
		return true, nil
	}
	return false, err
}

// MostZeros is the longest run of zeros behind which Zeros keeps the bytes of a stream.
const MostZeros = 1 << 20

// Zeros returns the first place from … end whose byte is not zero, -1 if there is none. If it is more than MostZeros
// behind `from`, a stream cannot be read further.
func (w *Window) Zeros(from, end int64) (int64, error) {
	if w.stream == nil {
		return firstByte(sources.NewReader(w.File, from, end), from)
	}
	for at := from; at < end; {
		have := w.buf[at-w.lo : min(int64(len(w.buf)), end-w.lo)]
		if i := len(have) - len(bytes.TrimLeft(have, "\x00")); i < len(have) {
			return at + int64(i), nil
		}
		if at += int64(len(have)); at-from >= MostZeros {
			return firstByte(w.stream, at)
		}
		behind := len(w.buf)
		w.buf = slices.Grow(w.buf, scanBytes)[:behind+scanBytes]
		n, err := io.ReadFull(w.stream, w.buf[behind:])
		w.buf = w.buf[:behind+n]
		if n == 0 && errors.Is(err, io.EOF) {
			return -1, nil
		}
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return -1, err
		}
	}
	return -1, nil
}

// firstByte returns the place of the first byte that is not zero, -1 if there is none. The first byte is at `from`.
func firstByte(r io.Reader, from int64) (int64, error) {
	first, buf := int64(-1), make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		if i := len(buf[:n]) - len(bytes.TrimLeft(buf[:n], "\x00")); i < n && first < 0 {
			first = from + int64(i)
		}
		if from += int64(n); err != nil || first >= 0 {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return first, err
		}
	}
}

// atEnd reads the stream from its place to the end, which is at byte `end`.
func (w *Window) atEnd(end int64) error {
	n, err := io.Copy(io.Discard, w.stream)
	if err != nil {
		return err
	}
	if at := w.lo + int64(len(w.buf)) + n; at != end {
		return Misfit(w.File, "its table of offsets ends at unpacked byte %d, and it has %d", end, at)
	}
	return nil
}

// early returns the error of a stream that ends early.
func (w *Window) early(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return millrace.Errorf(millrace.ErrDamaged, "read %s: it unpacks to %d bytes, and its table of offsets goes on",
			w.File.Name(), w.lo+int64(len(w.buf)))
	}
	return err
}

// ReadPackedOffsets reads a table at the beginning of a stream, as ReadOffsets does. most bounds its bytes.
func ReadPackedOffsets(f sources.File, r io.Reader, most int64) (Offsets, error) {
	w := NewStream(f, r)
	head, err := w.Fetch(0, 4, 4)
	if err != nil {
		return Offsets{}, err
	}
	size := 4 * (int64(le32(head)) + 1)
	if size > most {
		return Offsets{}, Misfit(f, "%d records are more than are read from a packed file", size/4-1)
	}
	b, err := w.Fetch(4, 4+size, 4+size)
	if err != nil {
		return Offsets{}, err
	}
	o := Offsets{bytes: b}
	_, err = o.ascending(f, 0, 0)
	return o, err
}
