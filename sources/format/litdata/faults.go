package litdata

import (
	"fmt"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/parts/extents"
)

func misfit(f sources.File, format string, args ...any) error {
	return extents.Misfit(f, format, args...)
}

func refused(f sources.File, format string, args ...any) error {
	return millrace.Errorf(millrace.ErrInvalid, "open %s: %s", f.Name(), fmt.Sprintf(format, args...))
}

func bad(format string, args ...any) error {
	return millrace.Errorf(millrace.ErrBadSample, "%s", fmt.Sprintf(format, args...))
}

// Bounds of what a file may ask for.
const (
	mostIndex  = 1 << 30 // bytes of an index.json
	mostLeaves = 1 << 16
	mostDepth  = 64      // of nested values
	mostFrame  = 1 << 30 // unpacked bytes of a frame
	mostRatio  = 1 << 15 // unpacked bytes of a packed one: that of a block of zstd
)
