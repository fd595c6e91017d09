package ids

import (
	"context"
	"math"

	"millrace"
	"millrace/sources"
)

// Shard reads the documents of an open file. It is immutable, so its methods may be called concurrently. A format's
// shard embeds it and adds Index.
type Shard struct {
	file   sources.File
	layout Layout
	table  *Table
	limit  uint64 // most bytes of a document
}

var (
	_ sources.Lengther    = (*Shard)(nil)
	_ sources.Sized       = (*Shard)(nil)
	_ sources.Sizer       = (*Shard)(nil)
	_ sources.PieceReader = (*Shard)(nil)
	_ sources.Placer      = (*Shard)(nil)
)

// New returns the shard of a file whose documents have the places of the table.
func New(f sources.File, at Layout, table *Table, lim sources.Limits) *Shard {
	return &Shard{file: f, layout: at, table: table, limit: uint64(lim.SampleBytes)}
}

// CheckField returns an error if a source asks for fields: documents of ids have none.
func CheckField(f sources.File, field sources.Field) error {
	if len(field.Others) == 0 {
		return nil
	}
	return millrace.Errorf(millrace.ErrInvalid,
		"open %s: its documents have tokens and no field %s: a filter can ask for tokens alone", f.Name(),
		field.Others[0])
}

// Count implements sources.Shard.
func (s *Shard) Count() (uint64, bool) { return s.table.count, true }

// Abilities implements sources.Shard.
func (s *Shard) Abilities() sources.Abilities {
	return sources.Abilities{Lengths: s, Memory: s, Sizes: s, Pieces: s, Places: s}
}

// Seekable implements sources.Shard.
func (s *Shard) Seekable() bool { return true }

// Close implements io.Closer. The caller of Open closes the file.
func (s *Shard) Close() error { return nil }

// Memory implements sources.Sized.
func (s *Shard) Memory() int64 { return 512 + s.table.Memory() }

// isGood reports whether a document with the given number of ids is within the limits.
func (s *Shard) isGood(ids uint64) bool {
	return ids <= mostToken && ids*uint64(s.layout.DType.Size) <= s.limit
}

// Length implements sources.Lengther. If a value can be no id, a document must be read to find whether all its ids are
// good.
func (s *Shard) Length(record uint64) (uint32, bool) {
	if !s.layout.DType.isCertain() {
		return 0, false
	}
	_, n, ok := s.table.Span(record)
	if !ok {
		return 0, false
	}
	return uint32(n), s.isGood(n)
}

// Place implements sources.Placer, for 16-bit ids. A wider id may be none, and narrower ones are rare.
func (s *Shard) Place(record uint64) (sources.DocumentPlace, bool) {
	if s.layout.DType.Signed || s.layout.DType.Size != 2 {
		return sources.DocumentPlace{}, false
	}
	start, n, ok := s.table.Span(record)
	if !ok || !s.isGood(n) {
		return sources.DocumentPlace{}, false
	}
	return sources.DocumentPlace{Offset: s.layout.From + int64(2*start), Tokens: uint32(n), Width: 2}, true
}

// Size implements sources.Sizer.
func (s *Shard) Size(record uint64) uint32 {
	if _, n, ok := s.table.Span(record); ok && s.isGood(n) {
		return uint32(n)
	}
	return 0
}

// Scan implements sources.Shard.
func (s *Shard) Scan(ctx context.Context, from uint64, fn func(sources.Record) error) error {
	r := &reader{Shard: s}
	for n := from; n < s.table.count; n++ {
		part := sources.DocumentPart{Record: n, Length: math.MaxUint32}
		if err := r.one(ctx, part, s.table.count-n, fn); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// Read implements sources.Shard.
func (s *Shard) Read(ctx context.Context, numbers []uint64, fn func(sources.Record) error) error {
	r := &reader{Shard: s}
	defer sources.Expect(s.file, func() []sources.Range {
		out := make([]sources.Range, 0, len(numbers))
		for _, n := range numbers {
			out = s.rangeOf(out, sources.DocumentPart{Record: n, Length: math.MaxUint32})
		}
		return out
	})()
	for i, n := range numbers {
		run := uint64(1)
		for i+int(run) < len(numbers) && numbers[i+int(run)] == n+run {
			run++
		}
		if err := r.one(ctx, sources.DocumentPart{Record: n, Length: math.MaxUint32}, run, fn); err != nil {
			return err
		}
	}
	return nil
}

// ReadPieces implements sources.PieceReader.
func (s *Shard) ReadPieces(ctx context.Context, parts []sources.DocumentPart, fn func(sources.Record) error) error {
	r := &reader{Shard: s}
	defer sources.Expect(s.file, func() []sources.Range {
		out := make([]sources.Range, 0, len(parts))
		for _, part := range parts {
			out = s.rangeOf(out, part)
		}
		return out
	})()
	for i, part := range parts {
		run := uint64(1)
		for i+int(run) < len(parts) && s.follows(parts[i+int(run)-1], parts[i+int(run)]) {
			run++
		}
		if err := r.one(ctx, part, run, fn); err != nil {
			return err
		}
	}
	return nil
}

// rangeOf appends the stretch of the file that a part of a document takes.
func (s *Shard) rangeOf(out []sources.Range, part sources.DocumentPart) []sources.Range {
	start, length, ok := s.table.Span(part.Record)
	if !ok || !s.isGood(length) {
		return out
	}
	first := min(uint64(part.Start), length)
	from, size := s.layout.From+int64((start+first)*uint64(s.layout.DType.Size)), uint64(s.layout.DType.Size)
	return append(out, sources.Range{Start: from, End: from + int64(min(uint64(part.Length), length-first)*size)})
}

// follows reports whether a part begins at the end of another one, or before it.
func (s *Shard) follows(part, next sources.DocumentPart) bool {
	if next.Record == part.Record {
		return next.Start >= part.Start && uint64(next.Start) <= uint64(part.Start)+uint64(part.Length)
	}
	_, length, ok := s.table.Span(part.Record)
	return ok && next.Record == part.Record+1 && next.Start == 0 && uint64(part.Start)+uint64(part.Length) >= length
}

// fetchBytes is the size of one read if documents follow each other.
const fetchBytes = 256 << 10

// reader keeps a stretch of the ids.
type reader struct {
	*Shard
	buf    []byte
	lo     uint64 // first byte of buf, counted from the first id
	tokens []uint32
}

// one passes a part of a document to fn. The caller asks for run documents in a row, of which this is the first.
func (r *reader) one(ctx context.Context, part sources.DocumentPart, run uint64,
	fn func(sources.Record) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	start, length, ok := r.table.Span(part.Record)
	if !ok {
		return r.astray(part.Record)
	}
	size := uint64(r.layout.DType.Size)
	rec := sources.Record{
		Number: part.Record, Offset: r.layout.From + int64(start*size), Raw: int64(length * size),
	}
	if !r.isGood(length) {
		rec.Err = millrace.Errorf(millrace.ErrBadSample, "the document is longer than sample_bytes, %d", r.limit)
		return fn(rec)
	}
	first := min(uint64(part.Start), length)
	rec.Start, rec.Total = part.Start, uint32(length)
	start, length = start+first, min(uint64(part.Length), length-first)
	b, err := r.fetch(start*size, length*size, run)
	if err != nil {
		return err
	}
	if uint64(cap(r.tokens)) < length || r.tokens == nil {
		r.tokens = make([]uint32, 0, length)
	}
	tokens, wrong, at, ok := r.layout.DType.decode(r.tokens[:0], b)
	r.tokens = tokens
	if ok {
		rec.Tokens = tokens
	} else {
		rec.Err = millrace.Errorf(millrace.ErrBadSample, "token %d of the document is %d, which is no token id",
			first+uint64(at), wrong)
	}
	return fn(rec)
}

func (r *reader) astray(n uint64) error {
	if n >= r.table.count {
		return millrace.Errorf(millrace.ErrInvalid, "read record %d of %s: it has %d", n, r.file.Name(), r.table.count)
	}
	return millrace.Errorf(millrace.ErrMismatch, "find record %d of %s: its index does not fit the file", n,
		r.file.Name())
}

// fetch returns n bytes of the ids. They are valid until the next call.
func (r *reader) fetch(off, n, run uint64) ([]byte, error) {
	if off < r.lo || off+n > r.lo+uint64(len(r.buf)) {
		want := n
		if run > 1 {
			// The read covers the documents that follow, up to the end of the ids.
			all := r.table.ids * uint64(r.layout.DType.Size)
			want = max(n, min(fetchBytes, run*max(n, 64), all-off))
		}
		if want > uint64(cap(r.buf)) {
			r.buf = make([]byte, want)
		}
		r.buf, r.lo = r.buf[:want], off
		if err := sources.ReadFull(r.file, r.buf, r.layout.From+int64(off)); err != nil {
			r.buf = r.buf[:0]
			return nil, err
		}
	}
	return r.buf[off-r.lo : off-r.lo+n], nil
}
