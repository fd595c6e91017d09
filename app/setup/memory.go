package setup

import (
	"fmt"
	"runtime"

	"millrace/app/config"
	"millrace/constructors"
	"millrace/sources/format/parquet"
	"millrace/sources/format/parts/rows"
	"millrace/sources/store/remote"
	"millrace/text/tokenize"
)

// LoaderMemory returns one loader process's part of limits.loader_memory in bytes. A shadow gets the same part, because
// it may be promoted before another process has ended.
func LoaderMemory(c *config.Config) int64 {
	return int64(c.Limits.LoaderMemory) / int64(MostLoaders(c)+int(c.Reliability.Shadows))
}

// Reader is the division of one loader's or shadow's part of limits.loader_memory.
type Reader struct {
	Heap     int64 // limit of the process's heap in bytes
	Payload  int64 // of it, bytes of tokens and texts
	Encoders int   // at most, at least 1: the process's share of the processors
	// EncoderBytes are the bytes of each encoder. More remember more pieces of text.
	EncoderBytes int64
	Decoders     int   // goroutines. While half of them wait for a disk, the others keep the encoders busy.
	Kept         int64 // bytes that random reads keep for later ones
	Procs        int   // processors that the process uses at once
	Ahead        int64 // bytes of remote files that are read ahead
}

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

const (
	leastPart    = 16 << 20 // an encoder, two decoders and a few documents
	autoPart     = 64 << 20 // least part of a loader that `loaders: auto` adds
	decoderBytes = 2 << 20  // a decoder's scratch
	keptPart     = 16       // random reads keep one part in so many
	// with a remote source; each has one read in flight
	remoteDecoders = 32
)

// Division returns the division of the memory of each loader and shadow. Encoders take at most a quarter of it. The
// rest, without the scratch of decoders and of random reads, is payload and room for the garbage collector in equal
// parts.
func Division(c *config.Config) Reader {
	part, loaders, cores := LoaderMemory(c), Loaders(c), runtime.GOMAXPROCS(0)
	r := Reader{Heap: part}
	r.Encoders = max(min((cores+loaders-1)/loaders, int(part/4/tokenize.LeastEncoderBytes())), 1)
	r.EncoderBytes = tokenize.EncoderBytes(part / 4 / int64(r.Encoders))
	r.Decoders = 2 * r.Encoders
	r.Procs = min(cores, r.Decoders+2)
	if c.IsRemote() { // most decoders wait for a store
		r.Decoders = max(r.Decoders, min(remoteDecoders, int(part/8/decoderBytes)))
	}
	r.Kept, r.Ahead = part/keptPart, readAhead(c, part)
	fixed := int64(r.Encoders)*r.EncoderBytes + int64(r.Decoders)*decoderBytes + r.Kept + r.Ahead
	r.Payload = max((part-fixed)/2, part/4)
	return r
}

// SidecarMemory returns the bytes of a rank's largest batch, and the least limits.sidecar_memory for that many ranks of
// a host. Half of the limit is shared memory with room for two batches of each rank.
func SidecarMemory(c *config.Config, ranks int) (batch, needed int64) {
	batch = constructors.NewSet(c.Shapes(), c.PadMultiple).MaxBytes()
	return batch, 4 * batch * int64(ranks)
}

// CheckLoaderMemory refuses a limits.loader_memory that is too little for the loaders and shadows. The error names its
// place in the mixture file and a sufficient limit; it wraps millrace.ErrInvalid.
func CheckLoaderMemory(c *config.Config) error {
	if LoaderMemory(c) >= leastPart {
		return nil
	}
	return c.ErrorAt(
		"limits.loader_memory",
		fmt.Sprintf("limits.loader_memory %s is too little for %d loaders and %d shadows of at least %dMiB each",
			c.Limits.LoaderMemory, MostLoaders(c), c.Reliability.Shadows, leastPart>>20),
		fmt.Sprintf("write at least %dMiB, or fewer loaders",
			(MostLoaders(c)+int(c.Reliability.Shadows))*leastPart>>20),
	)
}

// CheckSidecarMemory refuses a limits.sidecar_memory that is too little for that many ranks of a host. The error names
// its place in the mixture file and a sufficient limit; it wraps millrace.ErrInvalid.
func CheckSidecarMemory(c *config.Config, ranks int) error {
	batch, needed := SidecarMemory(c, ranks)
	if needed <= int64(c.Limits.SidecarMemory) {
		return nil
	}
	const mib = 1 << 20
	return c.ErrorAt(
		"limits.sidecar_memory",
		fmt.Sprintf("limits.sidecar_memory %s is too little for %d ranks with batches of %d bytes",
			c.Limits.SidecarMemory, ranks, batch),
		fmt.Sprintf("write at least %dMiB", (needed+mib-1)/mib),
	)
}
