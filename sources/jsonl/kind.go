package jsonl

// kind is the packing of a file.
type kind uint32

const (
	plain kind = iota
	bgzf
	zstdFrames
	gzipOnly // streams
	zstdOnly // streams
	lastKind = zstdOnly
)

func (k kind) seekable() bool { return k <= zstdFrames }
