// Package webdataset reads tar archives of WebDataset and Energon. A record is a group of adjacent members that share a
// key, the part of their names before the first dot; its fields are the rests of the names.
//
// A field is decoded by its ending: .txt, .json, .cls, .npy and so on. A path may continue inside a JSON member:
// `json.text`. The path `text` also finds .txt, and then the key "text" of .json. Members of pickle are refused if they
// are asked for, because reading pickle runs code. Links, directories and devices are no members, sparse files are
// refused.
package webdataset

import (
	"bytes"
	"context"
	"slices"

	"millrace/sources"
	"millrace/sources/format/parts/extents"
	"millrace/sources/format/parts/packed"
)

// Format opens archives. It opens Energon's .tar.idx from the file system that New was given.
type Format struct {
	fs sources.FS
	// Truncated reads archives without an end mark.
	Truncated bool
}

var _ sources.Format = Format{}

// New returns the format over files. Archives must be opened from the same file system.
func New(files sources.FS) Format { return Format{fs: files} }

// Name returns the format's word in the mixture file.
func (Format) Name() string { return "webdataset" }

// Traits implements sources.Format.
func (Format) Traits() sources.Traits { return sources.Traits{} }

// Open reads only the end of the archive, and Energon's .tar.idx. The places of its groups are those of the
// index, else those of the .tar.idx. An archive without both must be indexed.
func (ff Format) Open(ctx context.Context, f sources.File, field sources.Field, lim sources.Limits,
	blob []byte) (sources.Shard, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	w, err := newWants(field)
	if err != nil {
		return nil, err
	}
	if kind := packed.KindOf(f); kind != packed.Plain {
		s := &stream{file: f, kind: kind, wants: w, limit: lim.SampleBytes, truncated: ff.Truncated}
		return s.openStream(blob)
	}
	var table *index
	if blob != nil {
		table, err = openIndex(f, blob)
	} else if !sources.IsUnpacked(f) { // an index beside the file has places in the packed bytes
		table, err = ff.energonIndex(ctx, f)
	}
	if err != nil {
		return nil, err
	}
	s := &shard{file: f, table: table, truncated: ff.Truncated}
	isEnergon := blob == nil && table != nil
	if table == nil {
		table = &index{}
	}
	s.extents = &extents.Shard{File: f, Table: table, New: func() extents.Decoder {
		return newDecoder(f, w, lim.SampleBytes, isEnergon)
	}}
	return s, nil
}

// shard is one open archive. It is immutable, so its methods may be called concurrently.
type shard struct {
	file    sources.File
	table   *index // nil before there is one
	extents *extents.Shard

	truncated bool // it may have no end mark
}

var (
	_ sources.Sized = (*shard)(nil)
	_ sources.Named = (*shard)(nil)
)

// Count implements sources.Shard.
func (s *shard) Count() (uint64, bool) {
	if s.table == nil {
		return 0, false
	}
	return s.table.count, true
}

// Abilities implements sources.Shard.
func (s *shard) Abilities() sources.Abilities { return sources.Abilities{Memory: s, Names: s} }

// Seekable implements sources.Shard.
func (s *shard) Seekable() bool { return true }

// Memory implements sources.Sized.
func (s *shard) Memory() int64 { return s.extents.Memory() }

// Close implements io.Closer. The caller of Open closes the file.
func (s *shard) Close() error { return nil }

// Read implements sources.Shard.
func (s *shard) Read(ctx context.Context, numbers []uint64, fn func(sources.Record) error) error {
	return s.extents.Read(ctx, numbers, fn)
}

// Scan implements sources.Shard. Without an index, it finds the groups as it goes.
func (s *shard) Scan(ctx context.Context, from uint64, fn func(sources.Record) error) error {
	if s.table != nil {
		return s.extents.Scan(ctx, from, fn)
	}
	r := s.extents.Reader()
	err := s.groups(ctx, func(n uint64, start, end int64) error {
		if n < from {
			return nil
		}
		return r.One(n, start, end, end, fn)
	})
	if err != nil {
		return err
	}
	r.Close()
	return ctx.Err()
}

// Index implements sources.Shard.
func (s *shard) Index(ctx context.Context, progress func(int64)) ([]byte, error) {
	b := &builder{}
	err := s.groups(ctx, func(_ uint64, start, end int64) error {
		b.add(start, end)
		progress(end)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return b.encode(s.file.Size()), nil
}

// namedGroups is the number of first groups whose members name the fields.
const namedGroups = 100

// FieldNames implements sources.Named.
func (s *shard) FieldNames(ctx context.Context) (names []string, err error) {
	w := newWalk(s.file, 0, s.file.Size())
	var key []byte
	for groups := 0; ctx.Err() == nil; {
		m, ok, err := w.next()
		if err != nil || !ok {
			return names, err
		}
		if !m.isField() {
			continue
		}
		if !bytes.Equal(m.key(), key) {
			if groups++; groups > namedGroups {
				break
			}
			key = append(key[:0], m.key()...)
		}
		if name := string(m.suffix()); !slices.Contains(names, name) && !isPickle(name) {
			names = append(names, name)
		}
	}
	return names, ctx.Err()
}

// groups calls fn for each group: its number, the first byte of its first header, and the first byte of the next group,
// or of the end of the archive.
func (s *shard) groups(ctx context.Context, fn func(n uint64, start, end int64) error) error {
	w := newWalk(s.file, 0, s.file.Size())
	w.whole, w.truncated = true, s.truncated
	var key []byte
	n, start := uint64(0), int64(-1) // before the first group
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		m, ok, err := w.next()
		if err != nil {
			return err
		}
		if ok && (!m.isField() || start >= 0 && string(m.key()) == string(key)) {
			continue
		}
		end := w.at
		if ok {
			end = m.start
		}
		if start >= 0 {
			if err := fn(n, start, end); err != nil {
				return err
			}
			n++
		}
		if !ok {
			return nil
		}
		key, start = append(key[:0], m.key()...), m.start
	}
}
