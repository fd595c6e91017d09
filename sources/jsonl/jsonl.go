// Package jsonl reads one JSON object a line from plain, gzip and zstd files. The first bytes of a file decide how it
// is read; its name does not.
//
// With an index of their lines, three kinds of files can be read at random: plain files, BGZF files, and zstd files
// with frames of at most 4 MiB each. Other gzip and zstd files only stream. A line ends at LF alone; the last line
// needs none. A line of only space, tab and CR is no record. A bad line costs that record. Damage to a compressed file
// ends the shard with an error that names the byte reached.
package jsonl

import (
	"context"

	"millrace/sources"
)

// Format opens files of JSON lines.
type Format struct {
	// Windows keeps memory of random reads for later ones. Sources may share it; nil keeps none.
	Windows *Windows
}

var _ sources.Format = Format{}

// Name returns the format's word in the mixture file.
func (Format) Name() string { return "jsonl" }

// defaultSampleBytes is the limit of a line if none is given.
const defaultSampleBytes = 64 << 20

// Open reads the file's first bytes. In a BGZF or zstd file it also reads the heads of the members or frames. It stops
// at the first that cannot be a restart point.
func (ff Format) Open(ctx context.Context, f sources.File, field sources.Field, lim sources.Limits,
	blob []byte) (sources.Shard, error) {
	if _, err := newParser(field); err != nil {
		return nil, err
	}
	if lim.SampleBytes <= 0 {
		lim.SampleBytes = defaultSampleBytes
	}
	s := &shard{f: f, field: field, limit: lim.SampleBytes, windows: ff.Windows}
	head := make([]byte, min(headBytes, f.Size()))
	if err := sources.ReadFull(f, head, 0); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if blob == nil {
		var err error
		s.kind, s.points, err = inspect(f, head)
		return s, err
	}
	x, err := openIndex(f, blob)
	if err != nil {
		return nil, err
	}
	if s.points, err = x.pointsOf(f); err != nil {
		return nil, err
	}
	s.index, s.kind = x, x.kind
	return s, nil
}
