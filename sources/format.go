package sources

import (
	"context"
	"io"
)

// File is a shard's bytes: random access and a known size. The caller of Open owns and closes it.
type File interface {
	io.ReaderAt
	Size() int64
	Name() string // for errors: the path the user knows
}

// Field says which part of a record is the document.
type Field struct {
	Text   string   // dotted path of the text field, for formats that have fields; "text" by default
	Others []string // further fields that every record is to come with, for filters
}

// Limits decide about content and belong to the run's identity, never to a host.
type Limits struct {
	SampleBytes int64 // a longer raw record is quarantined
}

// Format opens shards of one file format. Implementations are stateless and safe for concurrent use.
type Format interface {
	// Name is the word in the mixture file: jsonl, parquet, megatron, lengths.
	Name() string
	// Open reads the shard's own head or footer (not its records) and fails with millrace.ErrDamaged where the file cannot be
	// read as a whole. index is what Index returned for these bytes before, or nil.
	Open(ctx context.Context, f File, field Field, lim Limits, index []byte) (Shard, error)
}

// Shard is one open file. Methods may be called concurrently.
type Shard interface {
	// Count returns the number of records, false where it takes a scan (Index) to know.
	Count() (uint64, bool)
	// Seekable tells whether records can be read at random at a cost that does not grow with the file. It is decided by the
	// file's bytes alone. A shard that only streams puts its source into blocks order.
	Seekable() bool
	// Index scans the shard once and returns what Open needs to read it at random (and to know its count); nil where the format
	// needs nothing. progress is told the bytes of the file read so far.
	Index(ctx context.Context, progress func(bytes int64)) ([]byte, error)
	// Scan hands on records in file order from record number `from` until fn fails or the file ends. A record's memory is valid
	// only until fn returns. Damage to the whole file is returned (millrace.ErrDamaged); damage to one record is in Record.Err.
	Scan(ctx context.Context, from uint64, fn func(Record) error) error
	// Read hands on the given records (ascending numbers); only where Seekable, and counted.
	Read(ctx context.Context, numbers []uint64, fn func(Record) error) error
	io.Closer
}

// Record is one record of a shard: text to tokenise, or tokens as they are.
type Record struct {
	Number uint64   // from 0 in the shard
	Offset int64    // byte of the uncompressed file where it starts, -1 where the format has none
	Raw    int64    // uncompressed bytes it takes in the file: what cuts blocks
	Text   []byte   // valid UTF-8; nil for formats of tokens
	Tokens []uint32 // for formats of tokens
	Others []any    // values of Field.Others, in order: string, int, float64, bool, or nil where the record has none
	Err    error    // why the record is to be quarantined (wraps millrace.ErrBadSample); all content is then nil
}

// Lengther is implemented by shards that know documents' tokens without reading payload (pre-tokenised formats).
type Lengther interface {
	// Length returns the tokens of a record; ok is false where only reading the record tells whether it is good.
	Length(record uint64) (tokens uint32, ok bool)
}

// Sizer is implemented by shards whose own index counts the tokens of every record.
type Sizer interface {
	// Size returns the tokens that a record has if it is good, 0 where it is bad in any case.
	Size(record uint64) uint32
}

// Patcher is implemented by shards whose records may have patches of images beside their tokens.
type Patcher interface {
	// Patches returns the patches of a record, 0 where it has none.
	Patches(record uint64) uint32
}

// Companions is implemented by formats whose shard is more than the file that names it. The bytes of companions belong to the
// shard's digest as much as those of the file itself.
type Companions interface {
	// Companions returns the paths of the further files of the shard at path.
	Companions(path string) []string
}
