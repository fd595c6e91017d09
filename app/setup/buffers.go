package setup

import (
	"millrace/sources/format/parquet"
	"millrace/sources/format/parts/rows"
	"millrace/sources/store/remote"
)

// ReadBuffers is the memory that random reads of all sources of a process keep for later ones.
type ReadBuffers struct {
	windows *rows.Windows
	pages   *parquet.Pages
	remote  *remote.Host
}

// NewReadBuffers returns the memory of random reads for a process with the given number of decoders, of at most `bytes`
// bytes. stores has the process's means for remote files.
func NewReadBuffers(decoders int, bytes int64, stores *remote.Host) *ReadBuffers {
	return &ReadBuffers{
		windows: rows.NewWindows(2*decoders, bytes/2), pages: parquet.NewPages(bytes / 2), remote: stores,
	}
}
