package webdataset

import (
	"context"
	"encoding/binary"
	"io"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/parts/extents"
	"millrace/sources/format/parts/packed"
)

// stream is an archive that is packed as a whole. It is immutable, so its methods may be called concurrently.
type stream struct {
	file    sources.File
	kind    packed.Kind
	wants   *wants
	limit   int64
	count   uint64
	counted bool

	truncated bool // it may have no end mark
}

// openStream opens a packed archive. Its index has the number of groups alone.
func (s *stream) openStream(blob []byte) (sources.Shard, error) {
	f := s.file
	if blob == nil {
		return s, nil
	}
	if len(blob) != indexHead || string(blob[:4]) != indexMagic ||
		binary.LittleEndian.Uint32(blob[4:]) != indexVersion ||
		binary.LittleEndian.Uint64(blob[8:]) != uint64(f.Size()) {
		return nil, millrace.Errorf(millrace.ErrDamaged, "open index of %s: it is of another file", f.Name())
	}
	s.count, s.counted = binary.LittleEndian.Uint64(blob[16:]), true
	return s, nil
}

// Count implements sources.Shard.
func (s *stream) Count() (uint64, bool) { return s.count, s.counted }

// Abilities implements sources.Shard.
func (s *stream) Abilities() sources.Abilities { return sources.Abilities{Packed: s} }

// Seekable implements sources.Shard.
func (s *stream) Seekable() bool { return false }

// Unpack implements sources.Unpacker.
func (s *stream) Unpack(context.Context) (io.ReadCloser, error) {
	return packed.NewReader(s.file, s.kind)
}

// Close implements io.Closer. The caller of Open closes the file.
func (s *stream) Close() error { return nil }

// Index implements sources.Shard.
func (s *stream) Index(ctx context.Context, _ func(int64)) ([]byte, error) {
	b := &builder{}
	err := s.groups(ctx, func(g *group) error {
		b.count = g.number + 1
		return nil
	})
	return b.encode(s.file.Size()), err
}

// Read implements sources.Shard. An archive that only streams is not read at random.
func (s *stream) Read(context.Context, []uint64, func(sources.Record) error) error {
	return millrace.Errorf(millrace.ErrInvalid, "read records of %s: the archive only streams", s.file.Name())
}

// Scan implements sources.Shard.
func (s *stream) Scan(ctx context.Context, from uint64, fn func(sources.Record) error) error {
	d := newDecoder(s.file, s.wants, s.limit, false)
	return s.groups(ctx, func(g *group) error {
		if g.number < from {
			return nil
		}
		r := sources.Record{Number: g.number, Offset: g.start, Raw: g.end - g.start}
		if g.isLong {
			r.Err = bad("the group is longer than sample_bytes, %d, and a packed archive is read as a stream", s.limit)
			return fn(r)
		}
		if err := extents.Decode(d, &r, g.window, g.start, g.end); err != nil {
			return err
		}
		return fn(r)
	})
}

// group is a group of a stream. The window holds it, unless it is too long.
type group struct {
	window     *extents.Window
	number     uint64
	start, end int64
	isLong     bool
}

// mostHeaders is the memory of a group's headers, beside that of its members.
const mostHeaders = 1 << 20

// groups calls fn for each group, in order. The walk unpacks the file to its end, which has the checksum.
func (s *stream) groups(ctx context.Context, fn func(*group) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	unpacked, err := packed.NewReader(s.file, s.kind)
	if err != nil {
		return err
	}
	defer unpacked.Close()
	g := &group{window: extents.NewStream(s.file, unpacked), start: -1}
	w := &walk{window: g.window, end: unknownEnd, whole: true, truncated: s.truncated}
	var key []byte
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if g.window.Hold(w.at); g.start >= 0 && !g.isLong {
			g.window.Hold(g.start)
		}
		m, ok, err := w.next()
		if err != nil {
			return err
		}
		if ok && (!m.isField() || g.start >= 0 && string(m.key()) == string(key)) {
			g.isLong = g.isLong || g.start >= 0 && m.end-g.start > s.limit+mostHeaders
			continue
		}
		g.end = w.at
		if ok {
			g.end = m.start
		}
		if g.start >= 0 {
			if err := fn(g); err != nil {
				return err
			}
			g.number++
		}
		if !ok {
			return nil
		}
		key, g.start, g.isLong = append(key[:0], m.key()...), m.start, m.end-m.start > s.limit+mostHeaders
	}
}
