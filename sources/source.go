package sources

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"millrace"
	"millrace/sources/filter"
	"millrace/sources/find"
	"millrace/sources/index"
	"millrace/sources/order"
)

// Spec is one source as the mixture file describes it. All of it but IndexDir and Verify decides the source's samples or
// where they lie.
type Spec struct {
	Name      string
	Format    Format
	Base      string   // directory that relative patterns start from
	Patterns  []string // see Resolve
	Root      string   // of the names; empty: what each pattern names before its first wildcard
	Field     Field
	Limits    Limits
	Shuffle   millrace.Shuffle // as asked for; the manifest says what became of it
	Seed      uint64
	Epochs    uint32    // passes; 0: endless
	Tokenizer Tokenizer // nil for formats of tokens
	AddBOS    bool
	AddEOS    bool
	Filters   *filter.Set // the source's own is bit 0; Field.Others names what they ask for
	IndexDir  string      // of index files and length stores; empty: nothing is kept
	Verify    Verify      // how changed shards are noticed; default: VerifyTokens
}

// OpenOptions say how a source is opened; nothing in them changes what it is.
type OpenOptions struct {
	FS       FS                      // default: the operating system's
	IndexFS  index.FS                // files of IndexDir; default: the operating system's
	Spare    bool                    // where IndexDir cannot be written, log it and go on without; by default that is an error
	Progress func(done, total int64) // bytes indexed; calls do not overlap
	Parallel int                     // shards inspected at once; default GOMAXPROCS
	Trouble  func(text string)       // reading fails for now and is tried again; empty: it is over. Calls do not overlap
	Patient  bool                    // what fails for the host's reasons is tried for as long as the source is open; by default some 1.5 s
	Tried    func()                  // told of every try to open or read a file, whatever came of it; calls may overlap
	Deep     bool                    // hash every byte and compare with the hash first seen
	Logger   *slog.Logger            // default: none
}

func (o OpenOptions) withDefaults() OpenOptions {
	if o.FS == nil {
		o.FS = OSFS()
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

// Source is an opened source: its manifest, the order of its samples and what is remembered of their lengths. It is safe for
// concurrent use by several feeds. It runs nothing of its own.
type Source struct {
	spec      Spec
	fs        FS
	log       *slog.Logger
	manifest  millrace.Manifest
	transform transform
	memory    memory
	shards    *shardSet
	guards    []*guard // by shard
	seen      *seenFiles
	made      time.Time
	patience  patience
	halt      func() // nobody waits for a failing read any more
	unbind    func() bool
	closing   sync.Once

	global *order.Global // exactly one of the two is set
	blocks *order.Blocks
	tables *blockTables
}

// Open finds a source's files, digests and inspects them, decides the shuffle their bytes allow and indexes what that shuffle
// needs. Work already in IndexDir is not done again. The caller closes the source after its feeds have ended; where ctx ends, what fails
// to be read is not tried again, also after Open.
func Open(ctx context.Context, spec Spec, opts OpenOptions) (*Source, error) {
	s, err := newSource(spec, opts.withDefaults())
	if err != nil {
		return nil, fmt.Errorf("source %s: %w", spec.Name, err)
	}
	s.unbind = context.AfterFunc(ctx, s.halt)
	if err := s.open(ctx, opts.withDefaults()); err != nil {
		s.Close()
		return nil, fmt.Errorf("source %s: %w", spec.Name, err)
	}
	return s, nil
}

func newSource(spec Spec, opts OpenOptions) (*Source, error) {
	if spec.Shuffle == "" {
		spec.Shuffle = millrace.Global
	}
	if spec.Verify == "" {
		spec.Verify = VerifyTokens
	}
	s := &Source{
		spec:      spec,
		fs:        opts.FS,
		log:       opts.Logger.With("source", spec.Name),
		transform: newTransform(spec.Tokenizer, spec.AddBOS, spec.AddEOS),
		unbind:    func() bool { return true },
		made:      time.Now(),
	}
	done := make(chan struct{})
	s.halt = sync.OnceFunc(func() { close(done) })
	s.patience = patience{done: done, wait: retryWait, long: opts.Patient, tried: opts.Tried, trouble: &trouble{tell: opts.Trouble}}
	s.shards = newShardSet(s.openShard)
	var err error
	s.memory, err = openMemory(spec, opts.IndexFS, opts.Spare, s.log)
	s.seen = newSeenFiles(s)
	return s, err
}

func (s *Source) open(ctx context.Context, opts OpenOptions) error {
	files, err := find.Resolve(s.spec.Base, s.spec.Patterns, s.spec.Root, s.spec.Format.Name())
	if err != nil {
		return err
	}
	found, err := s.survey(ctx, files.Files, opts)
	if err != nil {
		return err
	}
	s.manifest = millrace.Manifest{Source: s.spec.Name, Format: s.spec.Format.Name(), Shuffle: s.spec.Shuffle}
	s.decideShuffle(found)
	if s.manifest.Shuffle == millrace.Global {
		if err := s.index(ctx, found, opts); err != nil {
			return err
		}
	}
	for i := range found {
		s.manifest.Shards = append(s.manifest.Shards, found[i].Shard)
		s.guards = append(s.guards, found[i].guard)
	}
	if err := s.rememberFiles(opts.Parallel); err != nil {
		return err
	}
	s.manifest.Fingerprint = manifestFingerprint(&s.manifest, s.spec)
	return s.arrange()
}

// decideShuffle lets one file that only streams put the whole source into blocks order.
func (s *Source) decideShuffle(found []surveyed) {
	if s.manifest.Shuffle != millrace.Global {
		return
	}
	for _, f := range found {
		if !f.seekable {
			s.manifest.Shuffle = millrace.Blocks
			s.manifest.Why = fmt.Sprintf("%s/%s can only be streamed", s.spec.Name, f.Name)
			return
		}
	}
}

// NoRecords is the error of a source without a single record.
func (s *Source) NoRecords() error {
	return millrace.Errorf(millrace.ErrInvalid, "no records in %d files, the first of them %s: give it files with documents, or take it out of the mixture",
		len(s.manifest.Shards), s.manifest.Shards[0].Path)
}

// arrange sets up the order once the manifest stands.
func (s *Source) arrange() error {
	seed := order.Seed{Run: s.spec.Seed, Source: s.spec.Name, Epochs: s.spec.Epochs}
	if records, ok := s.records(); ok && records == 0 {
		return s.NoRecords()
	}
	if s.manifest.Shuffle == millrace.Global {
		counts := make([]uint64, len(s.manifest.Shards))
		for i, sh := range s.manifest.Shards {
			counts[i] = sh.Count
		}
		s.global = order.NewGlobal(seed, counts)
		return nil
	}
	s.blocks = order.NewBlocks(seed, s.manifest.Shuffle == millrace.InFileOrder, len(s.manifest.Shards))
	s.tables = newBlockTables(s)
	return nil
}

// records returns the records of one epoch, false where some shard was not counted.
func (s *Source) records() (n uint64, ok bool) {
	for _, sh := range s.manifest.Shards {
		if !sh.Counted {
			return 0, false
		}
		n += sh.Count
	}
	return n, true
}

// Stats is what is known of one epoch of a source.
type Stats struct {
	Files   int
	Bytes   int64  // of the files as they lie
	Records uint64 // valid where Counted
	Counted bool
	Tokens  uint64 // of the records whose length is known
	Known   uint64 // how many those are; records known to be bad have none, and count
	Refused uint64 // of Known, those that the source's own filter refuses; they have no tokens here
}

// Stats sums up counts and the lengths known so far; it reads the length stores, not the data.
func (s *Source) Stats(ctx context.Context) (Stats, error) {
	st := Stats{Files: len(s.manifest.Shards)}
	st.Records, st.Counted = s.records()
	view := s.Lengths()
	defer view.Close()
	for i, sh := range s.manifest.Shards {
		st.Bytes += sh.Size
		count, ok := sh.Count, sh.Counted
		if !ok && s.tables != nil {
			if t := s.tables.whole(uint32(i)); t != nil {
				count, ok = t.Count(), true
			}
		}
		if !ok {
			continue
		}
		tokens, known, refused, err := view.sum(ctx, uint32(i), count)
		if err != nil {
			return st, fmt.Errorf("source %s: %w", s.spec.Name, err)
		}
		st.Tokens += tokens
		st.Known += known
		st.Refused += refused
	}
	return st, nil
}

// Close closes files and stores. Feeds have to have ended.
func (s *Source) Close() error {
	var err error
	s.closing.Do(func() {
		s.unbind()
		s.halt()
		s.shards.close()
		err = s.memory.close()
	})
	return err
}
