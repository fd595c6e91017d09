// Package tfrecord reads TensorFlow's files of records: u64 length, masked
// CRC32C of the length, data, masked CRC32C of the data. A record is a tf.train.Example, or a text.
//
// Plain files are read at random with an index of the records. Files packed with gzip or zlib only stream. The first
// bytes decide, because names do not show it. A wrong checksum of the data makes its record bad. After a wrong checksum
// of a length no record can be found, so it ends the file with an error.
package tfrecord

import (
	"context"
	"encoding/binary"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/parts/example"
	"millrace/sources/format/parts/ids"
)

// Format opens files of records.
type Format struct {
	// Content is the content of each record.
	Content example.Content
}

var (
	_ sources.Format = Format{}
	_ sources.Sized  = (*shard)(nil)
)

// Name returns the format's word in the mixture file.
func (Format) Name() string { return "tfrecord" }

// Traits implements sources.Format.
func (ff Format) Traits() sources.Traits {
	return sources.Traits{Settings: "record=" + string(ff.Content)}
}

// Open reads the first bytes of the file.
func (ff Format) Open(ctx context.Context, f sources.File, field sources.Field, lim sources.Limits,
	index []byte) (sources.Shard, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if _, err := example.NewReader(ff.Content, field); err != nil {
		return nil, err
	}
	s := &shard{file: f, content: ff.Content, field: field, limit: lim.SampleBytes}
	var err error
	if s.packing, err = packingOf(f); err != nil {
		return nil, err
	}
	if index == nil {
		return s, nil
	}
	if s.packing == plain {
		s.table, err = ids.OpenTable(f.Name(), s.layout(), index)
	} else {
		s.records, err = countOf(f, index)
	}
	s.isCounted = true
	return s, err
}

// shard is one open file. It is immutable, so its methods may be called concurrently.
type shard struct {
	file    sources.File
	content example.Content
	field   sources.Field
	limit   int64 // most bytes of a record
	packing packing

	isCounted bool
	table     *ids.Table // of a plain file with an index
	records   uint64     // of a packed file with an index
}

// layout returns the layout of a table whose documents are the records with their frames.
func (s *shard) layout() ids.Layout {
	bytes, _ := ids.ByName("uint8")
	return ids.Layout{DType: bytes, Size: s.file.Size()}
}

// Count implements sources.Shard. Only the index has the count.
func (s *shard) Count() (uint64, bool) {
	if s.table != nil {
		return s.table.Count(), true
	}
	return s.records, s.isCounted
}

// Abilities implements sources.Shard.
func (s *shard) Abilities() sources.Abilities { return sources.Abilities{Memory: s, Packed: s} }

// Seekable implements sources.Shard.
func (s *shard) Seekable() bool { return s.packing == plain }

// Close implements io.Closer. The caller of Open closes the file.
func (s *shard) Close() error { return nil }

// Memory implements sources.Sized.
func (s *shard) Memory() int64 {
	if s.table == nil {
		return 512
	}
	return 512 + s.table.Memory()
}

// The index of a packed file is "MRtf", u32 version, u64 bytes of the file, u64 records, little-endian.
const (
	countMagic = "MRtf\x01\x00\x00\x00"
	countBytes = 24
)

func countOf(f sources.File, index []byte) (uint64, error) {
	if len(index) != countBytes || string(index[:8]) != countMagic ||
		binary.LittleEndian.Uint64(index[8:]) != uint64(f.Size()) {
		return 0, millrace.Errorf(millrace.ErrDamaged, "open index of %s: it does not fit the file", f.Name())
	}
	return binary.LittleEndian.Uint64(index[16:]), nil
}

// Index implements sources.Shard.
func (s *shard) Index(ctx context.Context, progress func(bytes int64)) ([]byte, error) {
	var b ids.Builder
	in, err := s.open(0)
	if err != nil {
		return nil, err
	}
	defer in.close()
	in.file.Progress(progress)
	for count := uint64(0); ; count++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		length, ok, err := in.length()
		switch {
		case err != nil:
			return nil, err
		case ok:
			if err := in.skip(length + footBytes); err != nil {
				return nil, err
			}
			b.Add(length + frameBytes)
		case s.packing == plain:
			return b.Encode(s.layout()), nil
		default:
			out := binary.LittleEndian.AppendUint64([]byte(countMagic), uint64(s.file.Size()))
			return binary.LittleEndian.AppendUint64(out, count), nil
		}
	}
}

// Scan implements sources.Shard.
func (s *shard) Scan(ctx context.Context, from uint64, fn func(sources.Record) error) error {
	n, at := uint64(0), uint64(0)
	if s.table != nil && from < s.table.Count() {
		start, _, ok := s.table.Span(from)
		if !ok {
			return s.astray(from)
		}
		n, at = from, start
	}
	in, err := s.open(int64(at))
	if err != nil {
		return err
	}
	defer in.close()
	x, err := example.NewReader(s.content, s.field)
	if err != nil {
		return err
	}
	for ; ; n++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		at := in.at
		length, ok, err := in.length()
		if err != nil || !ok {
			return err
		}
		if n < from || length > uint64(s.limit) {
			if err := in.skip(length + footBytes); err != nil {
				return err
			}
			if n < from {
				continue
			}
		}
		rec := sources.Record{Number: n, Offset: at, Raw: int64(length + frameBytes)}
		if length > uint64(s.limit) {
			rec.Err = s.tooLong()
		} else {
			data, err := in.data(length)
			if err != nil {
				return err
			}
			s.fill(x, &rec, data)
		}
		if err := fn(rec); err != nil {
			return err
		}
	}
}

func (s *shard) tooLong() error {
	return millrace.Errorf(millrace.ErrBadSample, "the record is longer than sample_bytes, %d", s.limit)
}

// fill sets the content of a record by its data with the checksum behind it.
func (s *shard) fill(x *example.Reader, rec *sources.Record, data []byte) {
	data, sum := data[:len(data)-footBytes], binary.LittleEndian.Uint32(data[len(data)-footBytes:])
	if masked(data) != sum {
		rec.Err = millrace.Errorf(millrace.ErrBadSample, "the checksum of the record is wrong")
		return
	}
	x.Fill(rec, data)
}

func (s *shard) astray(n uint64) error {
	return millrace.Errorf(millrace.ErrMismatch, "find record %d of %s: its index does not fit the file", n,
		s.file.Name())
}

// Read implements sources.Shard.
func (s *shard) Read(ctx context.Context, numbers []uint64, fn func(sources.Record) error) error {
	if s.table == nil {
		return millrace.Errorf(millrace.ErrInvalid, "read records of %s: no index was given, or the file only streams",
			s.file.Name())
	}
	x, err := example.NewReader(s.content, s.field)
	if err != nil {
		return err
	}
	w := &window{file: s.file}
	for i, n := range numbers {
		if err := ctx.Err(); err != nil {
			return err
		}
		if n >= s.table.Count() {
			return millrace.Errorf(millrace.ErrInvalid, "read record %d of %s: it has %d", n, s.file.Name(),
				s.table.Count())
		}
		start, size, ok := s.table.Span(n)
		if !ok || size < frameBytes {
			return s.astray(n)
		}
		rec := sources.Record{Number: n, Offset: int64(start), Raw: int64(size)}
		if size-frameBytes > uint64(s.limit) {
			rec.Err = s.tooLong()
		} else {
			run := uint64(1)
			for i+int(run) < len(numbers) && numbers[i+int(run)] == n+run {
				run++
			}
			data, err := w.fetch(int64(start), int64(size), int64(run))
			if err != nil {
				return err
			}
			if length, ok := lengthOf(data); !ok || length != size-frameBytes {
				return s.astray(n)
			}
			s.fill(x, &rec, data[headBytes:])
		}
		if err := fn(rec); err != nil {
			return err
		}
	}
	return nil
}
