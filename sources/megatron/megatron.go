// Package megatron reads Megatron's indexed datasets: a .bin of raw token ids and an .idx with the places of its
// documents.
//
// The shard is the .bin, with the .idx of the same name beside it. A record is a document: its sequences joined.
// Documents may be empty. Open checks the .idx against itself and the .bin. The .bin has no checksums: of its tokens,
// only negative ids and ids of 2³¹ and more are noticed. They cost their document.
package megatron

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strings"

	"millrace"
	"millrace/sources"
)

// Format opens Megatron datasets. It opens each .idx from the file system that New was given.
type Format struct{ fs sources.FS }

var (
	_ sources.Format     = Format{}
	_ sources.Companions = Format{}
	_ sources.Lengther   = (*shard)(nil)
	_ sources.Sized      = (*shard)(nil)

	_ sources.PieceReader = (*shard)(nil)
	_ sources.Placer      = (*shard)(nil)
)

// New returns the format over files. Shards must be opened from the same file system.
func New(files sources.FS) Format { return Format{fs: files} }

// Name returns the format's word in the mixture file.
func (Format) Name() string { return "megatron" }

// Companions names the .idx of a .bin.
func (Format) Companions(path string) []string { return []string{indexPath(path)} }

func indexPath(path string) string { return strings.TrimSuffix(path, ".bin") + ".idx" }

// defaultSampleBytes is the limit of a document if none is given.
const defaultSampleBytes = 64 << 20

// Open reads and checks the whole .idx. f is the .bin. There is no index to keep.
func (m Format) Open(ctx context.Context, f sources.File, field sources.Field, lim sources.Limits,
	_ []byte) (sources.Shard, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(field.Others) > 0 {
		return nil, millrace.Errorf(millrace.ErrInvalid,
			"open %s: its documents have tokens and no field %s: a filter can ask for tokens alone", f.Name(),
			field.Others[0])
	}
	idx, err := m.fs.Open(indexPath(f.Name()))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, millrace.Errorf(millrace.ErrDamaged, "open %s: its index is not beside it: %w; copy the .idx there",
			f.Name(), err)
	}
	if err != nil {
		return nil, fmt.Errorf("open the index of %s: %w", f.Name(), err)
	}
	defer idx.Close()
	dt, docs, err := readIndex(ctx, idx, f)
	if err != nil {
		return nil, err
	}
	if lim.SampleBytes <= 0 {
		lim.SampleBytes = defaultSampleBytes
	}
	return &shard{bin: f, dtype: dt, docs: docs, limit: uint64(lim.SampleBytes)}, nil
}

// shard is one open dataset. It is immutable, so its methods may be called concurrently.
type shard struct {
	bin   sources.File
	dtype *dtype
	docs  *documents
	limit uint64 // most bytes of a document
}

// Count implements sources.Shard.
func (s *shard) Count() (uint64, bool) { return s.docs.count, true }

// Seekable implements sources.Shard.
func (s *shard) Seekable() bool { return true }

// Index implements sources.Shard. The .idx takes the place of an index.
func (s *shard) Index(ctx context.Context, _ func(int64)) ([]byte, error) { return nil, ctx.Err() }

// Length implements sources.Lengther. If ids are signed, a document must be read to find whether all its ids are good.
func (s *shard) Length(record uint64) (uint32, bool) {
	if s.dtype.signed || record >= s.docs.count {
		return 0, false
	}
	_, n := s.docs.span(record)
	return uint32(n), n*uint64(s.dtype.size) <= s.limit && n <= mostToken
}

// Place implements sources.Placer, for 16-bit ids. A wider id may be none, and narrower ones are rare.
func (s *shard) Place(record uint64) (sources.DocumentPlace, bool) {
	if s.dtype.signed || s.dtype.size != 2 || record >= s.docs.count {
		return sources.DocumentPlace{}, false
	}
	start, n := s.docs.span(record)
	return sources.DocumentPlace{
			Offset: int64(2 * start),
			Tokens: uint32(n),
			Width:  2,
		}, 2*n <= s.limit &&
			n <= mostToken
}

// Size implements sources.Sizer.
func (s *shard) Size(record uint64) uint32 {
	if record >= s.docs.count {
		return 0
	}
	if _, n := s.docs.span(record); n*uint64(s.dtype.size) <= s.limit && n <= mostToken {
		return uint32(n)
	}
	return 0
}

// Memory implements sources.Sized.
func (s *shard) Memory() int64 { return 512 + int64(len(s.docs.deltas)) + 16*int64(len(s.docs.pages)) }

// Close implements io.Closer. The caller of Open closes the .bin.
func (s *shard) Close() error { return nil }

// Scan implements sources.Shard.
func (s *shard) Scan(ctx context.Context, from uint64, fn func(sources.Record) error) error {
	r := &reader{shard: s}
	for n := from; n < s.docs.count; n++ {
		if err := r.one(ctx, sources.DocumentPart{Record: n, Length: math.MaxUint32}, s.docs.count-n, fn); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// Read implements sources.Shard.
func (s *shard) Read(ctx context.Context, numbers []uint64, fn func(sources.Record) error) error {
	r := &reader{shard: s}
	for i, n := range numbers {
		if n >= s.docs.count {
			return millrace.Errorf(millrace.ErrInvalid, "read record %d of %s: it has %d", n, s.bin.Name(),
				s.docs.count)
		}
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
func (s *shard) ReadPieces(ctx context.Context, parts []sources.DocumentPart, fn func(sources.Record) error) error {
	r := &reader{shard: s}
	for i, part := range parts {
		if part.Record >= s.docs.count {
			return millrace.Errorf(millrace.ErrInvalid, "read record %d of %s: it has %d", part.Record, s.bin.Name(),
				s.docs.count)
		}
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

// follows reports whether a part begins at the end of another one, or before it.
func (s *shard) follows(part, next sources.DocumentPart) bool {
	if next.Record == part.Record {
		return next.Start >= part.Start && uint64(next.Start) <= uint64(part.Start)+uint64(part.Length)
	}
	_, length := s.docs.span(part.Record)
	return next.Record == part.Record+1 && next.Start == 0 && uint64(part.Start)+uint64(part.Length) >= length
}

// fetchBytes is the size of one read if documents follow each other.
const fetchBytes = 256 << 10

// reader keeps a stretch of the .bin.
type reader struct {
	shard  *shard
	buf    []byte
	lo     uint64 // first byte of buf in the .bin
	tokens []uint32
}

// one passes a part of a document to fn. The caller asks for run documents in a row, of which this is the first.
func (r *reader) one(ctx context.Context, part sources.DocumentPart, run uint64,
	fn func(sources.Record) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s := r.shard
	start, length := s.docs.span(part.Record)
	size := uint64(s.dtype.size)
	rec := sources.Record{Number: part.Record, Offset: int64(start * size), Raw: int64(length * size)}
	if length*size > s.limit {
		rec.Err = millrace.Errorf(millrace.ErrBadSample, "the document is longer than sample_bytes, %d", s.limit)
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
	tokens, wrong, at, ok := s.dtype.decode(r.tokens[:0], b)
	r.tokens = tokens
	if ok {
		rec.Tokens = tokens
	} else {
		rec.Err = millrace.Errorf(millrace.ErrBadSample, "token %d of the document is %d, which is no token id",
			first+uint64(at), wrong)
	}
	return fn(rec)
}

func (r *reader) fetch(off, n, run uint64) ([]byte, error) {
	if off < r.lo || off+n > r.lo+uint64(len(r.buf)) {
		want := n
		if run > 1 {
			// The read covers the documents that follow, up to the end of the file.
			want = max(n, min(fetchBytes, run*max(n, 64), uint64(r.shard.bin.Size())-off))
		}
		if want > uint64(cap(r.buf)) {
			r.buf = make([]byte, want)
		}
		r.buf, r.lo = r.buf[:want], off
		if err := sources.ReadFull(r.shard.bin, r.buf, int64(off)); err != nil {
			r.buf = r.buf[:0]
			return nil, err
		}
	}
	return r.buf[off-r.lo : off-r.lo+n], nil
}
