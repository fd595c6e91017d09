package setup

import (
	"millrace/sources/format/parquet"
	"millrace/sources/format/parts/rows"
	"millrace/sources/store/remote"
)

// Kept is the memory that random reads of all sources of a process keep for later ones.
type Kept struct {
	windows *rows.Windows
	pages   *parquet.Kept
	remote  *remote.Host
}

// NewKept returns the memory of random reads for a process with so many decoders: at most so many bytes. stores has the
// process's means for remote files.
func NewKept(decoders int, bytes int64, stores *remote.Host) *Kept {
	return &Kept{windows: rows.NewWindows(2*decoders, bytes/2), pages: parquet.NewKept(bytes / 2), remote: stores}
}
