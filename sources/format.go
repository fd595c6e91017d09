package sources

import (
	"context"
	"io"
	"slices"

	"millrace"
)

// File gives random access to a shard's bytes. The caller of Format.Open owns and closes it.
type File interface {
	io.ReaderAt
	Size() int64
	Name() string // the path as the user wrote it, for errors
}

// Field names the parts of a record that a source needs, by dotted paths. At each object, a key that equals all the
// rest of a path comes before the path's next part: `meta.lang` is the key "meta.lang" if there is one, else the key
// "lang" inside "meta".
type Field struct {
	Text   string   // the document's text; empty: the source needs no text, its documents are made of Others
	Others []string // further values, for the source's Maker and for filters
	// Needed is the number of the first values of Others, which the source's Maker needs. In place of nil, a format may
	// give the *MissingError of such a value, which says more.
	Needed int
	// MayLack are the fields whose column a file may lack: its records then lack the field. Another missing column is
	// an error of the file, a *LackError.
	MayLack []string
}

// split divides the values of Others into those that a document needs and the others.
func (f Field) split(values []any) (needed, others []any) {
	n := min(f.Needed, len(values))
	return values[:n], values[n:]
}

// equals reports whether two fields ask for the same.
func (f Field) equals(g Field) bool {
	return f.Text == g.Text && f.Needed == g.Needed && slices.Equal(f.Others, g.Others) &&
		slices.Equal(f.MayLack, g.MayLack)
}

// Limits decide about content. They belong to the run's identity, not to a host. Formats take them as they are.
type Limits struct {
	SampleBytes int64 // a longer raw record is quarantined
}

// UsualSampleBytes is the limit of a record if the caller gives none: that of a mixture file without `sample_bytes`.
const UsualSampleBytes = 64 << 20

// Resolved returns the limits with the usual ones in place of those that were not given.
func (l Limits) Resolved() Limits {
	if l.SampleBytes <= 0 {
		l.SampleBytes = UsualSampleBytes
	}
	return l
}

// Format opens shards of one file format. Implementations are stateless and safe for concurrent use.
type Format interface {
	// Name is the word in the mixture file: jsonl, parquet, megatron, lengths.
	Name() string
	// Traits returns the format's declarations beside its shards.
	Traits() Traits
	// Open reads the shard's head or footer, not its records. It fails with millrace.ErrDamaged if the whole file is
	// unreadable. index is an earlier result of Shard.Index for the same bytes, or nil.
	Open(ctx context.Context, f File, field Field, lim Limits, index []byte) (Shard, error)
}

// Shard is one open file. Methods may be called concurrently.
type Shard interface {
	// Count returns the number of records, or false if only a scan (Index) can find it.
	Count() (uint64, bool)
	// Seekable reports whether records can be read at random at a cost that does not grow with the file. Only the
	// file's bytes decide it. A shard that is not seekable puts its source into blocks order.
	Seekable() bool
	// Index scans the shard once. It returns the index that Open needs to count the shard and to read it at random, nil
	// if the format needs none. It calls progress with the bytes of the file read so far.
	Index(ctx context.Context, progress func(bytes int64)) ([]byte, error)
	// Scan passes records to fn in file order, from record number `from` on, until fn fails or the file ends. A
	// record's memory is valid until fn returns. Damage to the file is returned as millrace.ErrDamaged, damage to one
	// record is in Record.Err.
	Scan(ctx context.Context, from uint64, fn func(Record) error) error
	// Read passes the records with these ascending numbers to fn. The shard is seekable and counted.
	Read(ctx context.Context, numbers []uint64, fn func(Record) error) error
	// Abilities returns the shard's further abilities. The call costs little and takes no memory.
	Abilities() Abilities
	io.Closer
}

// Abilities are the declarations of a shard beside its records: each is the shard itself or a part of it, nil if the
// shard lacks the ability. A shard around another one changes those that it implements and passes the others on.
type Abilities struct {
	Lengths Lengther
	Runs    RunLengther
	Sizes   Sizer
	Patches Patcher
	Pieces  PieceReader
	Places  Placer
	Names   Named
	Grains  Grainer
	Packed  Unpacker
	Lacks   Lacking
	Memory  Sized // nil: little
}

// Record is one record of a shard: text to tokenise, or tokens.
type Record struct {
	Number uint64   // from 0 in the shard
	Offset int64    // of its first byte in the uncompressed file, -1 if the format has no offsets
	Raw    int64    // uncompressed bytes that it takes in the file; they decide the ends of blocks
	Text   []byte   // valid UTF-8; nil for formats of tokens, and if Field.Text is empty
	Tokens []uint32 // for formats of tokens, and of a record that was made before
	Made   bool     // Tokens are the finished document of a text; Text is nil
	MadeOf int64    // bytes of the text of which the document was made; Source.Document sets it
	// TooLong: the document was longer than its source allows, and was truncated, dropped, or left to be split. The
	// source's Maker sets it.
	TooLong bool
	Start   uint32 // of a part of a document (ReadPieces): the document's tokens before Tokens
	Total   uint32 // of a part of a document (ReadPieces): the document's tokens
	// Others has the values of Field.Others, in order: those of package values, and *MissingError (Field.Needed). A
	// value that the record lacks is nil.
	// The slice is valid until fn returns; the values have memory of their own, and are immutable.
	Others []any
	// Err is the reason to quarantine the record (wraps millrace.ErrBadSample). The record then has no content. Only
	// if Err is a *MissingError, Others is set.
	Err error
}

// Lengther is the ability of shards that have the lengths of documents without reading them (pre-tokenised formats).
type Lengther interface {
	// Length returns the tokens of a record; ok is false if the record must be read to find whether it is good.
	Length(record uint64) (tokens uint32, ok bool)
}

// RunLengther is the ability of shards whose file has runs of records of one length.
type RunLengther interface {
	// LengthRuns calls fn for each run, in the order of the records, until fn fails. The lengths are those of Length.
	LengthRuns(fn func(tokens uint32, records uint64) error) error
}

// Sizer is the ability of shards whose own index counts the tokens of every record.
type Sizer interface {
	// Size returns the tokens of a record if it is good, 0 if it is certainly bad.
	Size(record uint64) uint32
}

// Patcher is the ability of shards whose records may have patches of images beside their tokens.
type Patcher interface {
	// Patches returns the patches of a record, 0 if it has none.
	Patches(record uint64) uint32
}

// Sized is the ability of shards that know their memory.
type Sized interface {
	// Memory returns the bytes that the open shard holds, without the file.
	Memory() int64
}

// Named is the ability of shards whose records have named fields.
type Named interface {
	// FieldNames returns the names of the fields at the top of the first records, each once.
	FieldNames(ctx context.Context) ([]string, error)
}

// Unpacker is the ability of shards of packed files. If a shard is not seekable, a seekable copy of its unpacked bytes
// can take the file's place in Format.Open.
type Unpacker interface {
	// Unpack returns the unpacked bytes of the file from the beginning. The caller closes it.
	Unpack(ctx context.Context) (io.ReadCloser, error)
}

// Unpacked is implemented by the copies of packed files. Size is the number of unpacked bytes. Name is the packed
// file's, so a format must not take the file for a packed one by its name.
//
// It is a property of one open file, and no declaration of a format: a format opens the packed file of one shard and
// the copy of another one.
type Unpacked interface {
	File
	IsUnpacked() bool
}

// IsUnpacked reports whether a file is the copy of a packed file.
func IsUnpacked(f File) bool {
	u, ok := f.(Unpacked)
	return ok && u.IsUnpacked()
}

// Traits are the declarations of a format beside its shards. The zero Traits are those of most formats.
type Traits struct {
	// Companions returns the paths of the other files of the shard at path, nil if it has none. The shard's digest
	// covers them as it covers the file that names the shard. nil: every shard is one file.
	Companions func(path string) []string
	// Settings of the format's own that decide the documents of a shard, as a text; "": none was given.
	Settings string
	// NameFields are the fields that follow from the names of shards, not from their bytes alone.
	NameFields []string
}

// Grainer is the ability of shards that unpack more than one record to read one at random.
type Grainer interface {
	// Grain returns the mean unpacked bytes of such a part, 0 if a record is read alone or if the shard was not
	// indexed.
	Grain() (bytes int64, err error)
}

// Cache has the documents of text shards ready made. It never changes a document, an offset or the reason of a bad
// record.
type Cache interface {
	// Wrap returns a shard that serves ready documents where the cache has them, and the records of inner elsewhere.
	// Closing it closes inner.
	Wrap(at Cached, inner Shard) Shard
}

// Cached names the documents of one shard of a source.
type Cached struct {
	Source *Source
	Shard  uint32 // in the manifest
	// Key covers the shard's digest, the identity of its file, and every setting that decides the shard's documents.
	Key millrace.Digest
}

// Name returns the name of the shard's file.
func (c Cached) Name() string { return c.Source.manifest.Shards[c.Shard].Path }

// PieceReader is the ability of shards that read a part of a document without the rest of it.
type PieceReader interface {
	// ReadPieces passes parts of documents to fn, in the order of the requests. Record.Tokens has the tokens of the
	// part; Record.Start and Record.Total give its place in the document. A part beyond the document's end has no
	// tokens. The shard is seekable and counted.
	ReadPieces(ctx context.Context, parts []DocumentPart, fn func(Record) error) error
}

// Placer is the ability of shards whose file holds documents as plain ids, so that another process can read them.
type Placer interface {
	// Place returns the place of a document's ids. ok is false if the record must be read to find whether it is good.
	Place(record uint64) (at DocumentPlace, ok bool)
}

// DocumentPlace is the place of a document's ids in the shard's file. Every bit pattern is an id.
type DocumentPlace struct {
	Offset int64  // of the first id, in bytes
	Tokens uint32 // ids
	Width  uint32 // bytes of an id, little-endian
}

// DocumentPart is a part of a document: at most Length tokens from Start on.
type DocumentPart struct {
	Record uint64
	Start  uint32
	Length uint32
}

// LargeBytes is the size above which a record is large. A process decodes few large records at the same time.
const LargeBytes = 1 << 20

// roomKey is the key of the function of WithRoom in a context.
type roomKey struct{}

// WithRoom returns a context for reads whose records are decoded. ask waits until there is room for a large record. One
// record asks several times.
func WithRoom(ctx context.Context, ask func(bytes int64) error) context.Context {
	return context.WithValue(ctx, roomKey{}, ask)
}

// AskRoom is called by formats that know the size of a record, or a bound of it, before they take memory for the
// record. It waits until there is room for a large one. Its error is that of the context.
func AskRoom(ctx context.Context, bytes int64) error {
	if bytes <= LargeBytes {
		return nil
	}
	if ask, ok := ctx.Value(roomKey{}).(func(int64) error); ok {
		return ask(bytes)
	}
	return nil
}
