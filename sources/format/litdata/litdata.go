// Package litdata reads the chunks of LitData's datasets.
//
// The index.json beside the chunks has the names and formats of an item's values; package find reads the names of the
// chunks from it. A chunk is plain, or packed by zstd as a whole, in frames or item by item. Nothing is unpacked in
// place. A value that is stored as pickle is refused if it is asked for, because reading pickle runs code.
package litdata

import (
	"context"
	"io"
	"strings"

	"millrace/sources"
	"millrace/sources/format/parts/extents"
	"millrace/sources/format/parts/packed"
)

// Format opens chunks. It opens each index.json from the file system that New was given.
type Format struct {
	fs      sources.FS
	indexes *indexes
}

var _ sources.Format = Format{}

// New returns the format over files. Chunks must be opened from the same file system.
func New(files sources.FS) Format { return Format{fs: files, indexes: &indexes{}} }

// Name returns the format's word in the mixture file.
func (Format) Name() string { return "litdata" }

// Traits implements sources.Format.
func (Format) Traits() sources.Traits { return sources.Traits{} }

// Open reads the table of items, and the index.json of the directory if it was not read before.
func (ff Format) Open(ctx context.Context, f sources.File, field sources.Field, lim sources.Limits,
	_ []byte) (sources.Shard, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	x, err := ff.indexes.of(ff.fs, f)
	if err != nil {
		return nil, err
	}
	framed, err := isFramed(f)
	if err != nil {
		return nil, err
	}
	if !framed && (!x.packs(f.Name()) || sources.IsUnpacked(f)) {
		return openPlain(ctx, f, x, field, lim.SampleBytes)
	}
	w, err := x.resolve(f, field)
	if err != nil {
		return nil, err
	}
	if framed {
		return openFramed(ctx, f, x, w, lim.SampleBytes)
	}
	return openPacked(f, x, w, lim.SampleBytes)
}

// openPlain opens a chunk whose items lie between the offsets of its table.
func openPlain(ctx context.Context, f sources.File, x *index, field sources.Field,
	limit int64) (sources.Shard, error) {
	offsets, behind, err := extents.ReadOffsets(ctx, f, 0)
	if err != nil {
		return nil, err
	}
	first, end := offsets.Bounds()
	// Ids are read in place, so they are not those of the copy of a packed chunk.
	if first == behind && end == behind && behind < f.Size() && !sources.IsUnpacked(f) {
		rows, err := openRows(ctx, f, behind, field, limit)
		if err != nil {
			return nil, err
		}
		return rows, x.checkRows(f, rows, int64(offsets.Count()))
	}
	if first != behind || end > f.Size() {
		return nil, extents.Misfit(f, "its items lie at bytes %d … %d of %d, and its table ends at byte %d", first, end,
			f.Size(), behind)
	}
	if end != f.Size() {
		return nil, extents.Misfit(f, "its items end at byte %d of %d", end, f.Size())
	}
	err = x.compare(f, found{items: int64(offsets.Count()), bytes: f.Size(), ids: end - first})
	if err != nil {
		return nil, err
	}
	w, err := x.resolve(f, field)
	if err != nil {
		return nil, err
	}
	return &extents.Shard{File: f, Table: offsets, Limit: limit, Names: x.readable(), New: func() extents.Decoder {
		d := newDecoder(x, w)
		if x.Level == levelSample {
			d.unpack = &itemUnpacker{limit: limit}
		}
		return d
	}}, nil
}

// mostTable bounds the bytes of the table of a packed chunk: 16 million items.
const mostTable = 64 << 20

// openPacked opens a chunk that is packed as a whole. It unpacks the table.
func openPacked(f sources.File, x *index, w *wants, limit int64) (sources.Shard, error) {
	if kind, _, _ := strings.Cut(x.Compression, ":"); kind != string(packed.Zstd) {
		return nil, refused(f, "it is packed with %s, which is not read", x.Compression)
	}
	r, err := packed.NewReader(f, packed.Zstd)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	offsets, err := extents.ReadPackedOffsets(f, r, mostTable)
	if err != nil {
		return nil, err
	}
	first, end := offsets.Bounds()
	if first != offsets.Memory()+4 {
		return nil, misfit(f, "its items begin at byte %d, and its table ends at byte %d", first, offsets.Memory()+4)
	}
	if err := x.compare(f, found{items: int64(offsets.Count()), bytes: end, ids: end - first}); err != nil {
		return nil, err
	}
	return &extents.Shard{File: f, Table: offsets, Limit: limit, Names: x.readable(),
		New:    func() extents.Decoder { return newDecoder(x, w) },
		Stream: func() (io.ReadCloser, error) { return packed.NewReader(f, packed.Zstd) }}, nil
}

// packs reports whether a chunk of this name is packed as a whole.
func (x *index) packs(name string) bool {
	return x.Compression != "" && strings.HasSuffix(name, "."+x.Compression+".bin")
}
