// Package mds reads the shards of MosaicML Streaming's datasets: MDS shards, and shards of lines.
//
// An MDS shard describes itself: the table of its samples and the names and encodings of its columns. The index.json of
// the directory names the shards; package find reads it. If it is beside a shard, both must agree. A column encoded
// by pickle is refused if it is asked for, because reading pickle runs code.
package mds

import (
	"context"
	"io"

	"millrace/sources"
	"millrace/sources/format/parts/extents"
	"millrace/sources/format/parts/packed"
)

// Format opens shards. It opens each index.json, and the descriptions of shards of lines, from the file system that New
// was given.
type Format struct {
	fs      sources.FS
	indexes *indexes
}

var (
	_ sources.Format = Format{}
)

// New returns the format over files. Shards must be opened from the same file system.
func New(files sources.FS) Format { return Format{fs: files, indexes: &indexes{}} }

// companions names the description of a shard of lines.
func companions(path string) []string {
	if meta := metaPath(path); meta != "" {
		return []string{meta}
	}
	return nil
}

// Name returns the format's word in the mixture file.
func (Format) Name() string { return "mds" }

// Traits implements sources.Format.
func (Format) Traits() sources.Traits { return sources.Traits{Companions: companions} }

// Open reads the table of samples and the description of the columns.
func (ff Format) Open(ctx context.Context, f sources.File, field sources.Field, lim sources.Limits,
	_ []byte) (sources.Shard, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if metaPath(f.Name()) != "" {
		return ff.openLines(ctx, f, field, lim.SampleBytes)
	}
	said, err := ff.indexes.of(ff.fs, f)
	if err != nil {
		return nil, err
	}
	if kind := packed.KindOf(f); kind != packed.Plain {
		return openPacked(f, kind, said, field, lim.SampleBytes)
	}
	offsets, behind, err := extents.ReadOffsets(ctx, f, 0)
	if err != nil {
		return nil, err
	}
	first, end := offsets.Bounds()
	if first < behind || end != f.Size() {
		return nil, extents.Misfit(
			f,
			"its samples lie at bytes %d … %d of %d, and its table ends at byte %d",
			first,
			end,
			f.Size(),
			behind,
		)
	}
	if first-behind > mostConfig {
		return nil, tooLong(f, first-behind)
	}
	description := make([]byte, first-behind)
	if err := sources.ReadFull(f, description, behind); err != nil {
		return nil, err
	}
	c, err := readConfig(f, description)
	if err != nil {
		return nil, err
	}
	if err := said.compare(f, offsets.Count(), f.Size(), c); err != nil {
		return nil, err
	}
	w, err := c.resolve(f, field)
	if err != nil {
		return nil, err
	}
	return &extents.Shard{File: f, Table: offsets, Limit: lim.SampleBytes, Names: c.readable(f),
		New: func() extents.Decoder { return newDecoder(c, w) }}, nil
}

// mostTable bounds the bytes of the table of a packed shard: 16 million samples.
const mostTable = 64 << 20

// openPacked opens a shard that is packed as a whole. It unpacks the table and the description.
func openPacked(f sources.File, kind packed.Kind, said *listed, field sources.Field,
	limit int64) (sources.Shard, error) {
	r, err := packed.NewReader(f, kind)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	offsets, err := extents.ReadPackedOffsets(f, r, mostTable)
	if err != nil {
		return nil, err
	}
	behind := offsets.Memory() + 4
	first, end := offsets.Bounds()
	if first < behind || first-behind > mostConfig {
		return nil, extents.Misfit(f, "its samples begin at byte %d, and its table ends at byte %d", first, behind)
	}
	description, err := io.ReadAll(io.LimitReader(r, first-behind))
	if err != nil {
		return nil, err
	}
	c, err := readConfig(f, description)
	if err != nil {
		return nil, err
	}
	if err := said.compare(f, offsets.Count(), end, c); err != nil {
		return nil, err
	}
	w, err := c.resolve(f, field)
	if err != nil {
		return nil, err
	}
	return &extents.Shard{File: f, Table: offsets, Limit: limit, Names: c.readable(f),
		New:    func() extents.Decoder { return newDecoder(c, w) },
		Stream: func() (io.ReadCloser, error) { return packed.NewReader(f, kind) }}, nil
}
