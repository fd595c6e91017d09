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
	IndexDir    string      // of index files and length stores; empty: there are none
	Verify      Verify      // how changed shards are noticed; default: VerifyTokens
}

// OpenOptions are the means of opening a source. They do not change its content.
type OpenOptions struct {
	FS   FS    // default: the operating system's
	Host *Host // shared by the sources of a process, which closes it; default: one of this source's own
	// if IndexDir cannot be written, log it and continue; by default that is an error
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
	Meter   *activity.Meter // of the process; nil: no measurements
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

// Query asks for the files of the source, which are in fs.
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
	return s.Maker.MakerTraits()
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

// settled returns the name of a format with its settings, for digests of facts that follow from both.
func settled(f Format) string {
	if settings := f.Traits().Settings; settings != "" {
		return f.Name() + " " + settings
	}
	return f.Name()
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
// systems, so the key leaves them out. version distinguishes files of equal sizes, times and ends.
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
