package sources

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"runtime"
	"slices"

	"golang.org/x/crypto/blake2b"

	"millrace"
	"millrace/internal/activity"
	"millrace/sources/facts/identity"
	"millrace/sources/facts/kept"
	"millrace/sources/find"
	"millrace/sources/read/filter"
)

// Spec is one source as the mixture file describes it. All fields but IndexDir and Verify decide the source's samples
// or the place of its files.
type Spec struct {
	Name     string
	Format   Format
	Base     string           // directory at which relative patterns start
	Patterns []string         // see find.Resolve
	Root     string           // of the shards' names; empty: the part of each pattern before its first wildcard
	Config   string           // of a directory that has configurations; see find.Query
	Split    string           // of a directory that has splits; see find.Query
	Version  *uint64          // of Delta tables; see find.Query
	Field    Field            // Open puts the fields of Maker and of Filters in front of Others, and Passed behind it
	Passed   []string         // paths of the values that go with each document to the trainer (Judge.Passed)
	Unnamed  []Unnamed        // looked for in the first records of each file
	Limits   Limits           // Open resolves them
	Shuffle  millrace.Shuffle // the requested one; the manifest has the resulting one
	// Copies gives files that can only be streamed seekable copies in IndexDir, if the requested shuffle is global.
	Copies bool
	Seed   uint64
	Epochs uint32 // passes; 0: endless
	// PieceTokens is the length of the pieces in whose order the source will be read (InPieces): Open counts them. 0:
	// it will be read in the order of documents.
	PieceTokens uint32
	// Uncut is the length up to which plans never cut a document; 0: they may cut any. Loaders say more of the labels
	// of longer ones.
	Uncut     uint32
	Tokenizer Tokenizer // nil for formats of tokens
	Maker     Maker     // of documents that are not of Field.Text alone; nil: of text, or of tokens as they are
	// SkipMissing leaves out the records without a field that the document needs, and those with an empty text. By
	// default they are quarantined, and an empty text is a document.
	SkipMissing bool
	AddBOS      bool
	AddEOS      bool
	Filters     *filter.Set // the source's own is bit 0
	IndexDir    string      // of index files and length stores; empty: nothing is kept
	Verify      Verify      // how changed shards are noticed; default: VerifyTokens
}

// OpenOptions are the means of opening a source. They do not change its content.
type OpenOptions struct {
	FS   FS    // default: the operating system's
	Host *Host // shared by the sources of a process, which closes it; default: one of this source's own
	// if IndexDir cannot be written, log it and go on; by default that is an error
	Spare    bool
	Looked   func(done, total int64) // files looked at; calls do not overlap
	Progress func(done, total int64) // bytes indexed; calls do not overlap
	Parallel int                     // shards inspected at once; default GOMAXPROCS
	// called when reading fails and is tried again; an empty text ends the trouble. Calls do not overlap
	Trouble func(text string)
	Patient bool            // try until the source is closed, if the host fails; by default some 1.5 s
	Tried   func()          // called after every try to open or read a file; calls may overlap
	Deep    bool            // hash every byte and compare with the hash first seen
	Cache   Cache           // of finished documents; nil: every text is tokenised
	Meter   *activity.Meter // of the process; nil: nothing is measured
	Logger  *slog.Logger    // default: none
}

func (o OpenOptions) withDefaults() OpenOptions {
	if o.FS == nil {
		o.FS = OSFS()
	}
	if o.Looked == nil {
		o.Looked = func(int64, int64) {}
	}
	if o.Progress == nil {
		o.Progress = func(int64, int64) {}
	}
	if o.Trouble == nil {
		o.Trouble = func(string) {}
	}
	if o.Tried == nil {
		o.Tried = func() {}
	}
	if o.Parallel <= 0 {
		o.Parallel = runtime.GOMAXPROCS(0)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Tokenizer turns text into tokens. It is safe for concurrent use.
type Tokenizer interface {
	// Append appends the tokens of a text to dst. tell is called after every MiB of text.
	Append(dst []uint32, text []byte, tell func()) []uint32
	// BOS returns the token that begins a document, if there is one.
	BOS() (id uint32, ok bool)
	// EOS returns the token that ends a document, if there is one.
	EOS() (id uint32, ok bool)
	// Fingerprint identifies the tokenizer: equal fingerprints give equal tokens.
	Fingerprint() [16]byte
}

// Maker makes the documents of a source's records. It is immutable and safe for concurrent use.
type Maker interface {
	// Fields returns the paths of the values that it needs beside the text.
	Fields() []string
	// Settings returns a text that identifies everything but the tokenizer that decides its documents.
	Settings() string
	// Traits returns what the maker declares beside its documents.
	Traits() MakerTraits
	// Document appends the tokens of a record's document to dst. values are those of Fields, in order. bytes is the
	// length of the text of which the document was made, 0 if there is none. tell is called after every MiB of text.
	// A record without a field that the document needs is a *MissingError. Every error wraps millrace.ErrBadSample.
	Document(dst []uint32, r *Record, values []any, tell func()) (tokens []uint32, bytes int64, err error)
}

// MakerTraits are what a maker declares beside its documents. The zero MakerTraits are those of a maker whose tokens
// are all trained on, and whose records have all of its fields.
type MakerTraits struct {
	// Revision tells the documents from those that an earlier release made of the same records with the same settings.
	// Lengths that the earlier release kept are then made anew. Settings do not change: saved states have them.
	Revision string
	MayLack  []string // the fields of Maker.Fields that a record may lack
	// LimitsLength: documents have a limit of length. Those beyond it are counted (Record.TooLong).
	LimitsLength bool
	// Untrained returns why a document of a record has no label. Such a record is bad. If it returns nil, the record is
	// a document like any other. values and r are those of Maker.Document. nil: no document has tokens that are not
	// trained on (tokenid.Untrained).
	Untrained func(r *Record, values []any) error
}

// Encoder turns whole texts into documents: [bos] + encoding + [eos]. It is safe for concurrent use.
type Encoder struct {
	tokenizer Tokenizer
	bos, eos  []uint32 // one token, or none
}

// NewEncoder returns the encoder of a source's texts. It puts bos before and eos behind each document, if asked to and
// if the tokenizer has them.
func NewEncoder(t Tokenizer, bos, eos bool) *Encoder {
	x := &Encoder{tokenizer: t}
	if id, ok := t.BOS(); ok && bos {
		x.bos = []uint32{id}
	}
	if id, ok := t.EOS(); ok && eos {
		x.eos = []uint32{id}
	}
	return x
}

// Append appends the document of a text to dst. tell is called after every MiB of text.
func (x *Encoder) Append(dst []uint32, text []byte, tell func()) []uint32 {
	dst = append(dst, x.bos...)
	dst = x.tokenizer.Append(dst, text, tell)
	return append(dst, x.eos...)
}

// plainText makes documents of Record.Text.
type plainText struct {
	*Encoder
	field     string
	skipEmpty bool
}

// Fields implements Maker.
func (*plainText) Fields() []string { return nil }

// Settings implements Maker.
func (*plainText) Settings() string { return "" }

// Traits implements Maker.
func (*plainText) Traits() MakerTraits { return MakerTraits{} }

// Document implements Maker.
func (p *plainText) Document(dst []uint32, r *Record, _ []any, tell func()) ([]uint32, int64, error) {
	if r.Tokens != nil {
		return dst, 0, millrace.Errorf(millrace.ErrBadSample, "tokenize record %d: it has tokens, not text", r.Number)
	}
	if len(r.Text) == 0 && p.skipEmpty {
		return dst, 0, NewMissingError(p.field, Empty, nil)
	}
	return p.Append(dst, r.Text, tell), int64(len(r.Text)), nil
}

// Query asks for the files of the source, which lie in fs.
func (s Spec) Query(fs FS) find.Query {
	return find.Query{Base: s.Base, Patterns: s.Patterns, Root: s.Root, Format: s.Format.Name(), Config: s.Config,
		Split: s.Split, Version: s.Version, Rows: RowsOf(fs, s.Format)}
}

// RowsOf returns the reader of a table's checkpoints, by the format of the table's files.
func RowsOf(fs FS, format Format) find.Rows {
	return func(path string, columns []string, fn func(values []any) error) error {
		f, err := fs.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		return Fence(millrace.ErrDamaged, func() string { return path }, func() error {
			field := Field{Others: columns, MayLack: columns}
			shard, err := format.Open(context.Background(), f, field, Limits{}.Resolved(), nil)
			if err != nil {
				return err
			}
			defer shard.Close()
			return shard.Scan(context.Background(), 0, func(r Record) error {
				if r.Err != nil {
					return fmt.Errorf("row %d: %w", r.Number, r.Err)
				}
				return fn(r.Others)
			})
		})
	}
}

// makerTraits returns the traits of the source's maker, the zero ones without a maker.
func (s Spec) makerTraits() MakerTraits {
	if s.Maker == nil {
		return MakerTraits{}
	}
	return s.Maker.Traits()
}

// wantsCopies reports whether files that can only be streamed get seekable copies.
func (s Spec) wantsCopies() bool { return s.Copies && s.Shuffle == millrace.Global && s.IndexDir != "" }

// changedCure is the advice about a file that changed.
func (s Spec) changedCure() string {
	if s.IndexDir == "" {
		return "restore the file"
	}
	return "restore the file, or remove " + s.IndexDir + " and begin a new run with the file as it is"
}

// fingerprint identifies the settings that decide the tokens of a shard's records. It is the key of length stores.
func (s Spec) fingerprint() millrace.Digest {
	var encoding [16]byte
	if s.Tokenizer != nil {
		encoding = s.Tokenizer.Fingerprint()
	}
	in := append([]byte("millrace transform 1"), encoding[:]...)
	in = append(in, flag(s.AddBOS), flag(s.AddEOS))
	in = appendText(in, settled(s.Format))
	in = appendText(in, s.Field.Text)
	if s.Maker != nil {
		in = appendText(in, s.Maker.Settings())
	}
	if revision := s.makerTraits().Revision; revision != "" {
		in = appendText(in, revision)
	}
	if len(s.Field.Others) > 0 { // the meaning of values, since dates are texts and decimals have their scale
		in = appendText(in, "values 2")
	}
	if s.SkipMissing {
		in = appendText(in, "skip missing")
	}
	if len(s.Passed) > 0 { // they decide which records are bad
		in = appendText(in, "pass")
	}
	for _, name := range s.Passed {
		in = appendText(in, name)
	}
	return digest128(in)
}

// withOthers returns the settings with the fields of the maker and then of the filters in front of Field.Others, and
// the passed-through ones behind it. A source that leaves out records, or whose documents have a limit of length, has a
// set of filters: its answers are kept, and count these documents.
func (s Spec) withOthers() Spec {
	var made []string
	if s.Maker != nil {
		made = s.Maker.Fields()
	}
	traits := s.makerTraits()
	s.Field.MayLack = slices.Concat(traits.MayLack, s.Filters.Fields(), s.Field.Others, s.Passed)
	if s.SkipMissing {
		s.Field.MayLack = slices.Concat(s.Field.MayLack, made, []string{s.Field.Text})
	}
	s.Field.Others = slices.Concat(made, s.Filters.Fields(), s.Field.Others, s.Passed)
	s.Field.Needed = len(made)
	if s.Filters == nil && (s.SkipMissing || traits.LimitsLength) {
		s.Filters = filter.EmptySet()
	}
	return s
}

// madeBy returns the maker of the source's documents, nil if its records are documents of tokens.
func (s Spec) madeBy() Maker {
	if s.Maker != nil {
		return s.Maker
	}
	if s.Tokenizer == nil {
		return nil
	}
	return &plainText{NewEncoder(s.Tokenizer, s.AddBOS, s.AddEOS), s.Field.Text, s.SkipMissing}
}

// filtersNames reports whether a filter asks for a field that follows from the name of a file.
func (s Spec) filtersNames() bool {
	fields := s.Format.Traits().NameFields
	return slices.ContainsFunc(s.Filters.Fields(), func(name string) bool {
		return slices.Contains(fields, name)
	})
}

// keys returns the keys of the source's length stores, zero for stores that it does not have. Answers of filters that
// ask for a file's name are not kept, because equal files share their stores.
func (s Spec) keys() (k kept.Keys) {
	if s.madeBy() != nil {
		k.Transform = s.fingerprint()
		if s.makerTraits().Untrained != nil {
			k.Untrained = digest128(append([]byte("millrace untrained 1"), k.Transform[:]...))
		}
		if s.Filters != nil && !s.filtersNames() {
			k.Filters = s.filterFingerprint()
		}
	}
	return k
}

// transforms returns the keys of the source's length stores without that of its filters.
func (s Spec) transforms() kept.Keys {
	k := s.keys()
	k.Filters = millrace.Digest{}
	return k
}

// filterFingerprint identifies the settings that decide the filters' answers for a record.
func (s Spec) filterFingerprint() millrace.Digest {
	transform := s.fingerprint()
	in := append([]byte("millrace filters 1"), transform[:]...)
	for _, text := range s.Filters.Texts() {
		in = appendText(in, text)
	}
	return digest128(in)
}

// cacheKey identifies everything that decides the documents of a shard: its digest, its file's state, the transform,
// and the fields that filters read. Numbers of devices change at a restart of a host, and those of inodes in some file
// systems, so the key leaves them out. version tells files of equal sizes, times and ends apart.
func (s Spec) cacheKey(shard millrace.Digest, file identity.File, version uint64) millrace.Digest {
	transform := s.fingerprint()
	in := append([]byte("millrace documents 1"), shard[:]...)
	in = append(in, transform[:]...)
	for _, n := range []uint64{uint64(s.Limits.SampleBytes), version, uint64(file.Size), uint64(file.Modified),
		uint64(file.Changed)} {
		in = binary.LittleEndian.AppendUint64(in, n)
	}
	for _, other := range s.Field.Others {
		in = appendText(in, other)
	}
	if s.makerTraits().Untrained != nil { // entries of an earlier release have documents without a label
		in = append(in, "labels"...)
	}
	return digest128(in)
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}

func appendText(dst []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(dst, uint64(len(s))), s...)
}

func digestText(text string) millrace.Digest { return digest128([]byte(text)) }

func digest128(in []byte) (d millrace.Digest) {
	h, err := blake2b.New(len(d), nil)
	if err != nil {
		return d // only a size or key out of range is an error
	}
	h.Write(in)
	h.Sum(d[:0])
	return d
}
