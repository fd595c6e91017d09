package litdata

import (
	"context"
	"encoding/binary"
	"io"

	"millrace/sources"
	"millrace/sources/format/arrow"
)

// A chunk of dicts of plain values has no items behind its table. It ends with an Arrow file of rows, the u32 length of
// that file, and magic.
const (
	arrowMagic = "LDARW01\x00"
	arrowTail  = 4 + len(arrowMagic)
)

// openRows opens the Arrow file inside a chunk whose table ends at byte behind.
func openRows(ctx context.Context, f sources.File, behind int64, field sources.Field,
	limit int64) (sources.Shard, error) {
	at := f.Size() - int64(arrowTail)
	if at < behind {
		return nil, misfit(f, "its items have no bytes, and there are no rows behind its table")
	}
	tail := make([]byte, arrowTail)
	if err := sources.ReadFull(f, tail, at); err != nil {
		return nil, err
	}
	size := int64(binary.LittleEndian.Uint32(tail))
	if string(tail[4:]) != arrowMagic || size != at-behind {
		return nil, misfit(f, "its items have no bytes, and its end says that %d bytes of rows lie before it; its "+
			"table and its end leave %d", size, at-behind)
	}
	rows := &section{io.NewSectionReader(f, at-size, size), f.Name()}
	return arrow.Format{}.Open(ctx, rows, field, sources.Limits{SampleBytes: limit}, nil)
}

// section is a part of a file.
type section struct {
	*io.SectionReader
	name string
}

// Name implements sources.File.
func (s *section) Name() string { return s.name }
