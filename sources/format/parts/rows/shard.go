package rows

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"

	"millrace"
	"millrace/sources"
)

// shard is one open file. Only its scratch changes, so its methods may be called concurrently.
type shard struct {
	f       sources.File
	layout  *Layout
	limit   int64 // most bytes of a record
	kind    kind
	points  []point
	index   *index    // nil before there is one
	windows *Windows  // nil keeps none
	parsers sync.Pool // of Parser
}

// Count implements sources.Shard. Only the index has the count.
func (s *shard) Count() (uint64, bool) {
	if s.index == nil {
		return 0, false
	}
	return s.index.count, true
}

// Abilities implements sources.Shard.
func (s *shard) Abilities() sources.Abilities {
	return sources.Abilities{Grains: s, Packed: s, Lacks: s, Names: s}
}

// Seekable implements sources.Shard.
func (s *shard) Seekable() bool { return s.kind.seekable() }

// Grain implements sources.Grainer: a frame of a compressed file is unpacked as a whole.
func (s *shard) Grain() (int64, error) {
	if s.index == nil || len(s.index.points) == 0 {
		return 0, nil
	}
	return s.index.plain / int64(len(s.index.points)/indexPoint), nil
}

// Close implements io.Closer. The caller of Open closes the file.
func (s *shard) Close() error {
	s.windows.forget(s)
	return nil
}

// newRecord returns the record of a line.
func (s *shard) newRecord(x Parser, number uint64, ln line) sources.Record {
	r := sources.Record{Number: number, Offset: ln.off, Raw: ln.raw}
	if ln.long {
		r.Err = millrace.Errorf(millrace.ErrBadSample, "the %s is longer than sample_bytes, %d", s.layout.Noun, s.limit)
		return r
	}
	x.SetContent(&r, ln.text)
	return r
}

func (s *shard) astray(number uint64) error {
	return millrace.Errorf(millrace.ErrMismatch, "find record %d of %s: its index does not fit the file", number,
		s.f.Name())
}

// stream reads the uncompressed file from some byte on. The caller calls close.
type stream struct {
	io.Reader
	file    *sources.Reader // nil if frames is set
	frames  *frameStream    // nil if the file is not read by frames
	zstd    *zstdStream     // nil if the file is not one zstd stream
	name    string          // of the file
	layout  *Layout
	windows *Windows
	memory  *scanMemory
}

// lines returns the records from the uncompressed byte off on, at which the stream was opened. They are valid until
// close.
func (st *stream) lines(ctx context.Context, off, limit int64) cut {
	if st.layout.NewCutter == nil {
		return newLines(ctx, st, off, limit, st.memory.lines)
	}
	return newCuts(ctx, st.name, st, st.layout.NewCutter(off > 0), off, limit, st.memory.lines)
}

// close gives the stream's memory to later streams.
func (st *stream) close() {
	m := st.memory
	if st.frames != nil {
		m.frame = st.frames.buf
	}
	if st.zstd != nil {
		st.zstd.end()
	}
	st.windows.giveScan(m)
}

// open begins a stream at an uncompressed byte. Without an index, or if the file only streams, that byte is 0.
func (s *shard) open(ctx context.Context, off int64) (*stream, error) {
	m, err := s.windows.forScan(s)
	if err != nil {
		return nil, err
	}
	st := &stream{name: s.f.Name(), layout: s.layout, windows: s.windows, memory: m}
	if err := s.begin(ctx, st, off); err != nil {
		st.close()
		return nil, err
	}
	return st, nil
}

// Unpack implements sources.Unpacker.
func (s *shard) Unpack(ctx context.Context) (io.ReadCloser, error) {
	st, err := s.open(ctx, 0)
	if err != nil {
		return nil, err
	}
	return unpacking{st, st.close}, nil
}

// unpacking is a stream that is not cut into records.
type unpacking struct {
	io.Reader
	close func()
}

// Close implements io.Closer.
func (u unpacking) Close() error {
	u.close()
	return nil
}

// begin sets the reader of a stream.
func (s *shard) begin(ctx context.Context, st *stream, off int64) (err error) {
	switch s.kind {
	case bgzf, zstdFrames:
		st.frames, err = s.openFrames(ctx, st.memory, off)
		st.Reader = st.frames
		return err
	case gzipOnly:
		st.file = sources.NewReader(s.f, 0, s.f.Size())
		st.Reader = newGzipStream(s.f, newSource(st.file, st.memory))
	case zstdOnly:
		st.file = sources.NewReader(s.f, 0, s.f.Size())
		st.zstd, err = newZstdStream(s.f, newSource(st.file, st.memory), &st.memory.unpack)
		st.Reader = st.zstd
	case bzip2Only:
		st.file = sources.NewReader(s.f, 0, s.f.Size())
		st.Reader = newBzip2Stream(s.f, newSource(st.file, st.memory))
	case xzOnly:
		st.file = sources.NewReader(s.f, 0, s.f.Size())
		st.Reader, err = newXZStream(s.f, newSource(st.file, st.memory))
	default:
		st.file = sources.NewReader(s.f, off, s.f.Size())
		st.Reader = st.file
	}
	return err
}

func (s *shard) openFrames(ctx context.Context, m *scanMemory, off int64) (*frameStream, error) {
	points, skip := s.points, int64(0)
	if off > 0 {
		i := s.index.holding(off)
		if i < 0 {
			return nil, millrace.Errorf(millrace.ErrMismatch, "find byte %d of %s: its index does not fit the file",
				off, s.f.Name())
		}
		points, skip = points[i:], off-points[i].at
	}
	fs := &frameStream{ctx: ctx, unpack: &m.unpack, points: points, buf: m.frame}
	if _, err := io.CopyN(io.Discard, fs, skip); err != nil {
		return nil, fmt.Errorf("find byte %d of %s: %w", off, s.f.Name(), err)
	}
	return fs, nil
}

// namedRecords is the number of records whose fields FieldNames lists.
const namedRecords = 100

// Lacks implements sources.Lacking.
func (s *shard) Lacks() sources.Lacks {
	if s.layout.Lacks == nil {
		return nil
	}
	return s.layout.Lacks()
}

// FieldNames implements sources.Named.
func (s *shard) FieldNames(ctx context.Context) ([]string, error) {
	if s.layout.Names != nil {
		return s.layout.Names(), nil
	}
	st, err := s.open(ctx, 0)
	if err != nil {
		return nil, err
	}
	defer st.close()
	var names []string
	done := errors.New("enough records")
	err = s.scanLines(ctx, st.lines(ctx, 0, s.limit), 0, func(n uint64, ln line) error {
		if n == namedRecords {
			return done
		}
		var record map[string]json.RawMessage
		if !ln.long && json.Unmarshal(ln.text, &record) == nil {
			for _, name := range slices.Sorted(maps.Keys(record)) {
				if !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
		return nil
	})
	if errors.Is(err, done) {
		err = nil
	}
	return names, err
}
