package jsonl

// kind is how a file is packed.
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
