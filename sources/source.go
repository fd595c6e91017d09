// Package sources opens named datasets for reading. A [Source] has a manifest, the order of its samples, its records,
// and the known lengths of its documents.
//
// Each [Format] has a package below and opens shards. The packages beside them have one concern each. find resolves
// paths. order maps ordinals to records. index and kept store counts and lengths. guard notices changed files. A
// feed.Feed reads one stripe ahead and serves its tokens.
package sources

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"

	"millrace"
	"millrace/internal/activity"
	"millrace/sources/facts/growth"
	"millrace/sources/facts/guard"
	"millrace/sources/facts/identity"
	"millrace/sources/facts/kept"
	"millrace/sources/find"
	"millrace/sources/read/order"
	"millrace/sources/store/copies"
)

// Source is an opened source: its manifest, the order of its samples, and access to its records and their lengths. It
// is safe for concurrent use by several feeds. It starts no goroutine.
type Source struct {
	spec      Spec
	log       *slog.Logger
	manifest  millrace.Manifest
	maker     Maker       // nil: records are documents of tokens
	traits    MakerTraits // of the maker
	host      *Host
	ownHost   bool // the source closes its host
	kept      *kept.Store
	opener    opener
	constants []string // names and kinds of the fields by the places of files that the source asks for
	shards    *shardSet
	survey    *survey
	guarding  *guard.Group // nil if the source is not verified
	seen      *guard.Seen
	lengths   lengthReader
	verifier  verifier
	patience  patience
	halt      func() // ends the waits for failing reads
	unbind    func() bool
	closing   *sync.Once
	pieces    *pieceOrders
	facts     int64 // bytes of the facts about the source and its files
	activity  *activity.Source
	others    []*Source // whose lengths are found with this source's (With)

	global *order.Global // nil in block orders
	blocks *order.Blocks // nil in global order
	tables *blockTables  // nil in global order
}

// Open finds a source's files, digests and inspects them, decides the shuffle that their bytes allow, and indexes them
// if that shuffle needs it. Work that is kept in IndexDir is not done again. The caller closes the source after its
// feeds have ended. Once ctx ends, also after Open, failing reads are not tried again.
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
	spec.Limits = spec.Limits.Resolved()
	spec = spec.withOthers()
	s := &Source{
		spec:     spec,
		log:      opts.Logger.With("source", spec.Name),
		maker:    spec.madeBy(),
		traits:   spec.makerTraits(),
		unbind:   func() bool { return true },
		closing:  new(sync.Once),
		pieces:   &pieceOrders{byTokens: map[uint32]*order.Global{}},
		activity: opts.Meter.Source(spec.Name),
	}
	done := make(chan struct{})
	s.halt = sync.OnceFunc(func() { close(done) })
	s.patience = patience{
		done:    done,
		wait:    retryWait,
		long:    opts.Patient,
		tried:   opts.Tried,
		trouble: &trouble{tell: opts.Trouble},
	}
	if s.host = opts.Host; s.host == nil {
		s.host, s.ownHost = NewHost(HostOptions{Logger: s.log}), true
	}
	s.shards = newShardSet(s.host, func(ctx context.Context, shard uint32) (*OpenShard, error) {
		o, err := s.opener.openAgain(ctx, s.manifest.Shards[shard], s.survey.watch(s.guarding, spec.Format, shard))
		if err == nil { // a survey's reads delay no batch
			o.file.activity, o.file.shard = s.activity, s.manifest.Shards[shard].Name
		}
		if err == nil && opts.Cache != nil && s.maker != nil {
			s.wrap(o, shard, opts.Cache)
		}
		return o, err
	})
	store, err := s.host.index(spec.IndexDir)
	if err != nil {
		return nil, err
	}
	s.kept = kept.New(kept.Config{Index: store, Spare: opts.Spare, Log: s.log, Keys: spec.keys(),
		Limit: spec.Limits.SampleBytes, Describe: s.describe})
	s.opener = opener{field: spec.Field, limits: spec.Limits, evidence: evidence{fs: opts.FS, files: s.host.files,
		format: spec.Format, kept: s.kept, patience: &s.patience, log: s.log}}
	if spec.wantsCopies() {
		s.opener.copies = copies.NewShelf(filepath.Join(spec.IndexDir, "copies"), s.host.files, &s.host.copies)
	}
	s.seen = guard.NewSeen(s.kept, digestText, s.log)
	s.lengths = lengthReader{
		kept:       s.kept,
		shards:     s.shards,
		filters:    spec.Filters,
		isOfTokens: s.maker == nil,
		limits:     spec.Limits,
	}
	s.verifier = verifier{kept: s.kept, verify: spec.Verify, cure: spec.changedCure(), manifest: &s.manifest}
	if spec.Verify != VerifyOff {
		s.guarding = &guard.Group{Source: spec.Name, Cure: spec.changedCure(), Evidence: &s.opener.evidence,
			Seen: s.seen, Log: s.log}
	}
	return s, nil
}

// wrap puts the cache in front of an open shard. A file without an identity is not cached: its content may change under
// the same key.
func (s *Source) wrap(o *OpenShard, shard uint32, cache Cache) {
	var file identity.File
	err := o.file.use(func(f OpenFile) (err error) {
		file, err = f.Identity()
		return err
	})
	if err == nil && !file.IsZero() {
		sh := s.manifest.Shards[shard]
		key := s.spec.cacheKey(s.opener.contentKey(&sh), file, s.version(sh, file))
		o.Shard = cache.Wrap(Cached{Source: s, Shard: shard, Key: key}, o.Shard)
	}
}

// version returns a number that distinguishes a shard's file from another one with the same size, times and ends: a
// sample of its middle. It is 0 if the ends are the whole file. The sample of a file that no run compares may be of an
// earlier one, so the number of its inode stands in for it. The number of an object is its version.
func (s *Source) version(sh millrace.Shard, file identity.File) uint64 {
	if !file.IsObject() && s.guarding != nil {
		if s.opener.CoversAll([]identity.File{file}) {
			return 0
		}
		if sample := s.seen.Sample(sh); sample != 0 {
			return sample
		}
	}
	return file.Inode
}

// describe returns the key of a shard's length store.
func (s *Source) describe(shard uint32) kept.Shard {
	sh := s.manifest.Shards[shard]
	out := kept.Shard{Path: sh.Path, Digest: s.opener.contentKey(&sh)}
	out.Count, out.Counted = s.countOf(shard)
	return out
}

// countOf returns the records of a shard, false if they were not counted.
func (s *Source) countOf(shard uint32) (uint64, bool) {
	if sh := s.manifest.Shards[shard]; sh.Counted || s.tables == nil {
		return sh.Count, sh.Counted
	}
	if t := s.tables.whole(shard); t != nil {
		return t.Count(), true
	}
	return 0, false
}

func (s *Source) open(ctx context.Context, opts OpenOptions) error {
	tree, _ := opts.FS.(find.Tree)
	files, err := find.Resolve(tree, s.spec.Query(opts.FS))
	if err != nil {
		return err
	}
	s.opener.constants = constantsOf(files.Files, s.spec.Field)
	s.constants = namesOf(s.opener.constants)
	s.facts = factsOf(files.Files, mostPaths(s.spec.Format, files.Files)) + int64(len(s.opener.constants))*constantFacts
	s.host.addFacts(s.facts)
	surveyor := &surveyor{opener: &s.opener, guards: s.guarding, seen: s.seen, indexDir: s.spec.IndexDir,
		settings: s.spec.settingsOf(s.constants), unnamed: s.spec.Unnamed, opts: opts}
	if s.survey, err = surveyor.survey(ctx, files.Files); err != nil {
		return err
	}
	s.manifest = millrace.Manifest{Source: s.spec.Name, Format: s.spec.Format.Name(), Shuffle: s.spec.Shuffle}
	s.manifest.Shards = s.survey.shards
	s.decideShuffle()
	if s.manifest.Shuffle == millrace.Global {
		err = surveyor.indexAll(ctx, s.survey)
	} else {
		err = surveyor.rememberUncounted(ctx, s.survey)
	}
	if err != nil {
		return err
	}
	s.survey.later = nil
	if err := s.kept.Flush(); err != nil {
		return err
	}
	s.manifest.Fingerprint = growth.Fingerprint(s.manifestSettings(), s.manifest.Shards)
	if err := s.arrange(); err != nil {
		return err
	}
	if _, err = s.InPieces(ctx, s.spec.PieceTokens); err == nil {
		s.keepListing(s.spec.PieceTokens)
	}
	return err
}

// decideShuffle puts the whole source into blocks order if one file only streams.
func (s *Source) decideShuffle() {
	first := int(s.survey.streams.Load())
	if s.manifest.Shuffle == millrace.Global && first < len(s.manifest.Shards) {
		s.manifest.Shuffle = millrace.Blocks
		s.manifest.Why = fmt.Sprintf("%s/%s can only be streamed", s.spec.Name, s.manifest.Shards[first].Name)
	}
}

// NoRecords returns the error of a source without a single record.
func (s *Source) NoRecords() error {
	return millrace.Errorf(millrace.ErrInvalid,
		"no records in %d files, the first of them %s: give it files with documents, or take it out of the mixture",
		len(s.manifest.Shards), s.manifest.Shards[0].Path)
}

// arrange sets up the order of a complete manifest.
func (s *Source) arrange() error {
	seed := s.seed()
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
	s.tables = newBlockTables(&s.opener.evidence, s.blocks.Plain, s.manifest.Shards)
	return nil
}

func (s *Source) seed() order.Seed {
	return order.Seed{Run: s.spec.Seed, Source: s.spec.Name, Epochs: s.spec.Epochs}
}

// records returns the records of one epoch, false if some shard was not counted.
func (s *Source) records() (n uint64, ok bool) {
	for _, sh := range s.manifest.Shards {
		if !sh.Counted {
			return 0, false
		}
		n += sh.Count
	}
	return n, true
}

// Stats sums up one epoch of a source, as far as it is known.
type Stats struct {
	Files   int
	Bytes   int64  // of the files, compressed as they are
	Records uint64 // valid if Counted
	Counted bool   // every shard has a count, from the manifest or from a scan that reached its end
	Tokens  uint64 // of the records in Known, without those in Refused and in Skipped
	Trained uint64 // labels of these tokens that count in the loss; 0 without untrained tokens
	Known   uint64 // records with known length; a bad record counts, with no tokens
	Refused uint64 // records in Known that the source's own filter refuses
	Skipped uint64 // records in Known that are left out because a field is missing
	TooLong uint64 // records in Known whose document is longer than the source allows
	Longest uint32 // tokens of the longest of these documents
	Pieces  uint64 // of the records in Known that count tokens; a document that is read whole is one
}

// Stats returns the counts and lengths known so far. It reads the length stores, not the data.
func (s *Source) Stats(ctx context.Context) (Stats, error) {
	st := Stats{Files: len(s.manifest.Shards)}
	st.Counted = true
	for i, sh := range s.manifest.Shards {
		st.Bytes += sh.Size
		count, ok := s.countOf(uint32(i))
		if !ok {
			st.Counted = false
			continue
		}
		st.Records += count
		view := s.Lengths()
		err := view.sum(ctx, uint32(i), count, s.PieceTokens(), &st)
		view.Close()
		if err != nil {
			return st, fmt.Errorf("source %s: %w", s.spec.Name, err)
		}
	}
	if !st.Counted {
		st.Records = 0
	}
	return st, nil
}

// Close closes files and stores. The source's feeds have ended.
func (s *Source) Close() error {
	var err error
	s.closing.Do(func() {
		s.unbind()
		s.halt()
		s.shards.closeIdle()
		s.host.addFacts(-s.facts)
		if err = s.kept.Flush(); s.ownHost {
			err = errors.Join(err, s.host.Close())
		}
	})
	return err
}
