package sources

import (
	"errors"
	"log/slog"
	"sync"

	"millrace"
	"millrace/sources/index"
)

// lengthStore remembers the tokens of each record of one shard under one transform, across runs and processes. Safe for
// concurrent use.
type lengthStore interface {
	Get(record uint64) (tokens uint32, ok bool)
	Put(record uint64, tokens uint32)
	Sum(record uint64) (sum uint32, ok bool) // the checksum of its tokens
	PutSum(record uint64, sum uint32)
	PutBad(record uint64, limit int64)
	Bad(record uint64, limit int64) bool
	Close() error
}

// memory is what a source remembers between runs.
type memory struct {
	blobs   blobStore
	lengths func(shard millrace.Digest, count uint64) (lengthStore, error) // nil: lengths are not kept

	mu     *sync.Mutex
	stores map[uint32]lengthStore // by shard; nil where it could not be opened
	early  map[uint32][]FoundLength
}

// FoundLength is the length of a record that a feed has just decoded.
type FoundLength struct {
	Record  uint64
	Tokens  uint32
	Sum     uint32 // checksum of the tokens; valid if Summed
	Summed  bool
	Refused uint32 // bits of the filters that refuse the record
	Bad     bool   // the record cannot be decoded and has no length
}

func (e *FoundLength) put(st lengthStore, limit int64) {
	if e.Bad {
		st.PutBad(e.Record, limit)
		return
	}
	st.Put(e.Record, e.Tokens)
	if e.Summed {
		st.PutSum(e.Record, e.Sum)
	}
	if f, ok := st.(*filteredLengths); ok {
		f.answers.Put(e.Record, e.Refused)
	}
}

func openMemory(spec Spec, files index.FS, spare bool, log *slog.Logger) (memory, error) {
	m := memory{mu: new(sync.Mutex), stores: make(map[uint32]lengthStore), early: make(map[uint32][]FoundLength)}
	if spec.IndexDir == "" {
		m.blobs = &volatileBlobs{kept: make(map[blobKey][]byte)}
		return m, nil
	}
	store, err := index.Open(spec.IndexDir, index.Options{FS: files, Log: log})
	if err != nil {
		return m, err
	}
	m.blobs = store
	if spare {
		m.blobs = &sparedBlobs{blobStore: store, kept: volatileBlobs{kept: make(map[blobKey][]byte)}, log: log}
	}
	if spec.Tokenizer != nil {
		transform := spec.fingerprint()
		m.lengths = func(shard millrace.Digest, count uint64) (lengthStore, error) {
			return store.Lengths(shard, transform, count)
		}
		if spec.Filters != nil {
			answers := spec.filterFingerprint()
			m.lengths = func(shard millrace.Digest, count uint64) (lengthStore, error) {
				lengths, err := store.Lengths(shard, transform, count)
				if err != nil {
					return nil, err
				}
				answered, err := store.Answers(shard, answers, count)
				if err != nil {
					return nil, errors.Join(err, lengths.Close())
				}
				return &filteredLengths{lengths, answered}, nil
			}
		}
	}
	return m, nil
}

func (m *memory) close() (err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, st := range m.stores {
		if st == nil {
			continue
		}
		if e := st.Close(); err == nil {
			err = e
		}
	}
	m.stores = nil
	if m.blobs == nil {
		return err
	}
	return errors.Join(err, m.blobs.Close())
}

// lengthsOf returns the length store of a shard, nil where there is none (yet).
func (s *Source) lengthsOf(shard uint32) lengthStore {
	m := &s.memory
	if m.lengths == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if st, ok := m.stores[shard]; ok || m.stores == nil {
		return st
	}
	sh := s.manifest.Shards[shard]
	count, ok := sh.Count, sh.Counted
	if !ok && s.tables != nil {
		if t := s.tables.whole(shard); t != nil {
			count, ok = t.Count(), true
		}
	}
	if !ok {
		return nil
	}
	st, err := m.lengths(sh.Digest, count)
	if err != nil {
		s.log.Warn("lengths are not remembered", "file", sh.Path, "err", err)
		st = nil
	}
	m.stores[shard] = st
	if st != nil {
		for _, e := range m.early[shard] {
			e.put(st, s.spec.Limits.SampleBytes)
		}
	}
	delete(m.early, shard)
	return st
}

// Remember keeps lengths just found, of one shard.
func (s *Source) Remember(shard uint32, found []FoundLength) {
	if s.memory.lengths == nil || len(found) == 0 {
		return
	}
	if st := s.lengthsOf(shard); st != nil {
		for _, e := range found {
			e.put(st, s.spec.Limits.SampleBytes)
		}
		return
	}
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	if _, failed := s.memory.stores[shard]; !failed && s.memory.stores != nil {
		s.memory.early[shard] = append(s.memory.early[shard], found...)
	}
}
