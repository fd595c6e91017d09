package kept

import (
	"errors"
	"log/slog"
	"sync"

	"millrace"
	"millrace/sources/facts/index"
)

// Config sets the place and the keys of a store.
type Config struct {
	Index *index.Store // its owner closes it after the store's last use; nil: blobs are kept in memory, no lengths
	// if the index cannot be written, log it and keep blobs in memory; by default that is an error
	Spare    bool
	Log      *slog.Logger
	Keys     Keys
	Limit    int64 // bytes of a raw record, above which it is bad
	Describe func(shard uint32) Shard
}

// Keys are the keys of the length stores. With a zero Transform no lengths are kept, with a zero Filters no answers,
// with a zero Untrained no untrained labels.
type Keys struct {
	Transform millrace.Digest // of the settings that decide a record's tokens
	Filters   millrace.Digest // of the settings that decide the filters' answers
	Untrained millrace.Digest // of the settings that decide a record's untrained tokens
}

// Shard describes a shard for its length store.
type Shard struct {
	Path    string
	Digest  millrace.Digest
	Count   uint64 // valid if Counted
	Counted bool
}

// Store holds the facts of one source. It is safe for concurrent use. It calls Describe under its lock.
type Store struct {
	blobs
	cfg Config
	// opens the lengths of a shard; without make, nil if there are none. The function is nil if lengths are not kept
	open func(shard millrace.Digest, count uint64, make bool) (Lengths, error)

	readOnly sync.Once // logs that lengths are not remembered

	mu     sync.Mutex
	stores map[uint32]Lengths // of the last shards asked for; nil if a shard's could not be opened
	early  map[uint32][]Length
}

// mostStores bounds the shards whose lengths are remembered as open. The others are found in the index.
const mostStores = 4096

// New returns the store of a source.
func New(cfg Config) *Store {
	s := &Store{cfg: cfg, stores: make(map[uint32]Lengths), early: make(map[uint32][]Length)}
	if cfg.Index == nil {
		s.blobs = newVolatileBlobs()
		return s
	}
	s.blobs = cfg.Index
	if cfg.Spare {
		s.blobs = &sparedBlobs{blobs: cfg.Index, log: cfg.Log}
	}
	var none millrace.Digest
	if cfg.Keys.Transform != none {
		s.open = func(shard millrace.Digest, count uint64, make bool) (Lengths, error) {
			return openLengths(cfg.Index, cfg.Keys, shard, count, make)
		}
	}
	return s
}

func openLengths(store *index.Store, keys Keys, shard millrace.Digest, count uint64, make bool) (Lengths, error) {
	lengths, err := store.Lengths(shard, keys.Transform, count, make)
	if err != nil || lengths == nil { // a nil *index.Lengths is no nil Lengths
		return nil, err
	}
	var none millrace.Digest
	var out Lengths = lengths
	if keys.Filters != none {
		answers, err := store.Answers(shard, keys.Filters, count, true)
		if err != nil {
			return nil, err
		}
		out = &Filtered{out, answers}
	}
	if keys.Untrained != none {
		untrained, err := store.Answers(shard, keys.Untrained, count, true)
		if err != nil {
			return nil, err
		}
		out = &Labelled{out, untrained}
	}
	return out, nil
}

// ReadOnly returns the index directory if it can only be read, else "".
func (s *Store) ReadOnly() string {
	if s.cfg.Index == nil || !s.cfg.Index.IsReadOnly() {
		return ""
	}
	return s.cfg.Index.Dir()
}

// HasLengths reports whether lengths are kept.
func (s *Store) HasLengths() bool { return s.open != nil }

// Lengths returns the lengths of a shard, to read and to put. It is nil if lengths are not kept, and as long as the
// shard is not counted.
func (s *Store) Lengths(shard uint32) Lengths { return s.lengths(shard, true) }

// Known returns the lengths of a shard, nil if none were ever put.
func (s *Store) Known(shard uint32) Lengths { return s.lengths(shard, false) }

func (s *Store) lengths(shard uint32, make bool) Lengths {
	if s.open == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if st, ok := s.stores[shard]; ok {
		return st
	}
	sh := s.cfg.Describe(shard)
	if !sh.Counted {
		return nil
	}
	st, err := s.open(sh.Digest, sh.Count, make || len(s.early[shard]) > 0)
	if st == nil && err == nil {
		return nil
	}
	if errors.Is(err, index.ErrReadOnly) {
		s.readOnly.Do(func() {
			s.cfg.Log.Info("lengths are not remembered: index_dir is read-only, and `millrace index --lengths` has "+
				"not made them", "file", sh.Path)
		})
	} else if err != nil {
		s.cfg.Log.Warn("lengths are not remembered", "file", sh.Path, "err", err)
	}
	if err != nil {
		st = nil
	}
	if len(s.stores) >= mostStores {
		clear(s.stores)
	}
	s.stores[shard] = st
	if st != nil {
		for _, l := range s.early[shard] {
			l.putIn(st, s.cfg.Limit)
		}
	}
	delete(s.early, shard)
	return st
}

// Remember keeps newly found lengths of one shard. Lengths of a shard that is not counted yet wait in memory.
func (s *Store) Remember(shard uint32, found []Length) {
	if s.open == nil || len(found) == 0 {
		return
	}
	if st := s.Lengths(shard); st != nil {
		for _, l := range found {
			l.putIn(st, s.cfg.Limit)
		}
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, failed := s.stores[shard]; !failed {
		s.early[shard] = append(s.early[shard], found...)
	}
}
