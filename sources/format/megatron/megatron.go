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
	"strings"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/parts/ids"
)

// Format opens Megatron datasets. It opens each .idx from the file system that New was given.
type Format struct{ fs sources.FS }

var (
	_ sources.Format = Format{}
)

// New returns the format over files. Shards must be opened from the same file system.
func New(files sources.FS) Format { return Format{fs: files} }

// Name returns the format's word in the mixture file.
func (Format) Name() string { return "megatron" }

// Traits implements sources.Format.
func (Format) Traits() sources.Traits { return sources.Traits{Companions: companions} }

// companions names the .idx of a .bin.
func companions(path string) []string { return []string{indexPath(path)} }

func indexPath(path string) string { return strings.TrimSuffix(path, ".bin") + ".idx" }

// Open reads and checks the whole .idx. f is the .bin. There is no index to keep.
func (m Format) Open(ctx context.Context, f sources.File, field sources.Field, lim sources.Limits,
	_ []byte) (sources.Shard, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := ids.CheckField(f, field); err != nil {
		return nil, err
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
	dtype, table, err := readIndex(ctx, idx, f)
	if err != nil {
		return nil, err
	}
	return shard{ids.New(f, ids.Layout{DType: dtype, Size: f.Size()}, table, lim)}, nil
}

// shard is one open dataset.
type shard struct{ *ids.Shard }

// Index implements sources.Shard. The .idx takes the place of an index.
func (shard) Index(ctx context.Context, _ func(int64)) ([]byte, error) { return nil, ctx.Err() }
