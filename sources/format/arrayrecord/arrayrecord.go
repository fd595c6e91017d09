// Package arrayrecord reads ArrayRecord files: chunks of Riegeli's records format, and a footer with the place of every
// chunk (ArrayRecord's layout).
//
// A record is a text, or a tf.train.Example. The footer leads to every chunk, so damage to one costs its records only.
// Chunks carry checksums of their head and their data, and a chunk whose checksums differ is not decoded. Chunks that
// are transposed have no documented format; a file with such chunks is refused.
package arrayrecord

import (
	"context"
	"errors"
	"sync"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/parts/example"
)

// Format opens ArrayRecord files.
type Format struct {
	// Content is the content of each record.
	Content example.Content
}

var (
	_ sources.Format  = Format{}
	_ sources.Grainer = (*shard)(nil)
	_ sources.Sized   = (*shard)(nil)
)

// Name returns the format's word in the mixture file.
func (Format) Name() string { return "arrayrecord" }

// Traits implements sources.Format.
func (ff Format) Traits() sources.Traits {
	return sources.Traits{Settings: "record=" + string(ff.Content)}
}

// Open reads the ends of the file and the footer. With an index it reads nothing.
func (ff Format) Open(ctx context.Context, f sources.File, field sources.Field, lim sources.Limits,
	index []byte) (sources.Shard, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if _, err := example.NewReader(ff.Content, field); err != nil {
		return nil, err
	}
	s := &shard{file: f, content: ff.Content, field: field, limit: lim.SampleBytes}
	if index != nil {
		var err error
		if s.table, err = openTable(f, index); err != nil {
			return nil, err
		}
		s.count = s.table.records
		return s, nil
	}
	foot, err := openFooter(f)
	if err != nil {
		return nil, err
	}
	s.count = foot.records
	return s, nil
}

// shard is one open file. Its methods may be called concurrently.
type shard struct {
	file    sources.File
	content example.Content
	field   sources.Field
	limit   int64 // most bytes of a record
	count   uint64

	mu    sync.Mutex
	table *table // of the index, or of the first scan

	// unpackers has those of earlier readings: to make a decoder takes longer than to unpack a short record. Their
	// decoders have no goroutines, so the collector may take them.
	unpackers sync.Pool
}

// Count implements sources.Shard.
func (s *shard) Count() (uint64, bool) { return s.count, true }

// Abilities implements sources.Shard.
func (s *shard) Abilities() sources.Abilities { return sources.Abilities{Memory: s, Grains: s} }

// Seekable implements sources.Shard.
func (s *shard) Seekable() bool { return true }

// Close implements io.Closer. The caller of Open closes the file.
func (s *shard) Close() error { return nil }

// Memory implements sources.Sized.
func (s *shard) Memory() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.table == nil {
		return 512
	}
	return 512 + int64(len(s.table.pages)+len(s.table.deltas))
}

// Grain implements sources.Grainer: a chunk is unpacked as a whole.
func (s *shard) Grain() (int64, error) {
	t, err := s.places(context.Background())
	if err != nil || t.chunks == 0 || t.chunks == t.records {
		return 0, err
	}
	return int64(t.unpacked / t.chunks), nil
}

// Index implements sources.Shard. It has the places of the chunks, so that the footer need not be unpacked again.
func (s *shard) Index(ctx context.Context, progress func(bytes int64)) ([]byte, error) {
	t, err := readTable(ctx, s.file)
	if err != nil {
		return nil, err
	}
	progress(s.file.Size())
	return t.encode(s.file.Size()), nil
}

// places returns the table of chunks.
func (s *shard) places(ctx context.Context) (*table, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.table == nil {
		t, err := readTable(ctx, s.file)
		if err != nil {
			return nil, err
		}
		s.table = t
	}
	return s.table, nil
}

// Scan implements sources.Shard.
func (s *shard) Scan(ctx context.Context, from uint64, fn func(sources.Record) error) error {
	r, err := s.reader(ctx, aheadBytes)
	if err != nil {
		return err
	}
	defer r.close()
	for n := from; n < s.count; n++ {
		if err := r.one(ctx, n, fn); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// Read implements sources.Shard.
func (s *shard) Read(ctx context.Context, numbers []uint64, fn func(sources.Record) error) error {
	r, err := s.reader(ctx, 0)
	if err != nil {
		return err
	}
	defer r.close()
	for _, n := range numbers {
		if n >= s.count {
			return millrace.Errorf(millrace.ErrInvalid, "read record %d of %s: it has %d", n, s.file.Name(), s.count)
		}
		if err := r.one(ctx, n, fn); err != nil {
			return err
		}
	}
	return nil
}

// aheadBytes is the size of one read of a scan.
const aheadBytes = 256 << 10

// reader reads records, and keeps the chunk of the last one.
type reader struct {
	*shard
	table  *table
	fields *example.Reader
	blocks blocks
	unpack *unpacker
	at     place    // of the chunk; no records before the first
	chunk  [][]byte // its records
	broken error    // the reason why it has none
}

func (s *shard) reader(ctx context.Context, ahead int64) (*reader, error) {
	t, err := s.places(ctx)
	if err != nil {
		return nil, err
	}
	x, err := example.NewReader(s.content, s.field)
	if err != nil {
		return nil, err
	}
	u, ok := s.unpackers.Get().(*unpacker)
	if !ok {
		u = new(unpacker)
	}
	return &reader{shard: s, table: t, fields: x, blocks: blocks{file: s.file, ahead: ahead}, unpack: u}, nil
}

// close keeps the unpacker for the next reader if its memory is small.
func (r *reader) close() {
	if u := r.unpack; cap(u.sizes)+cap(u.values) <= mostAtOnce {
		r.unpackers.Put(u)
	} else {
		u.close()
	}
}

func (r *reader) one(ctx context.Context, n uint64, fn func(sources.Record) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if n < r.at.first || n >= r.at.first+r.at.records {
		if err := r.load(n); err != nil {
			return err
		}
	}
	rec := sources.Record{Number: n, Offset: r.at.offset}
	switch {
	case r.broken != nil:
		rec.Err = r.broken
		return fn(rec)
	default:
		data := r.chunk[n-r.at.first]
		rec.Raw = int64(len(data))
		if rec.Raw > r.limit {
			rec.Err = millrace.Errorf(millrace.ErrBadSample, "the record is longer than sample_bytes, %d", r.limit)
			return fn(rec)
		}
		r.fields.Fill(&rec, data)
		return fn(rec)
	}
}

// load reads the chunk of a record. Damage to the chunk is kept as the reason for each of its records.
func (r *reader) load(n uint64) error {
	at, ok := r.table.holding(n)
	if !ok {
		return millrace.Errorf(millrace.ErrMismatch, "find record %d of %s: its index does not fit the file", n,
			r.file.Name())
	}
	r.at, r.chunk, r.broken = place{}, r.chunk[:0], nil
	c, err := r.blocks.chunk(at.offset)
	if err == nil {
		r.chunk, err = c.records(r.unpack, r.chunk, at.records)
	}
	if errors.Is(err, errTransposed) {
		return c.refuse(r.file)
	}
	if err != nil && !sources.IsDamage(err) {
		return err
	}
	if err != nil {
		state := "is damaged"
		if limit := (*sources.LimitError)(nil); errors.As(err, &limit) {
			state = "is too large"
		}
		r.broken = millrace.Errorf(millrace.ErrBadSample, "the chunk at byte %d %s: %s", at.offset, state, err.Error())
	}
	r.at = at
	return nil
}
