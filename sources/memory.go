package sources

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"millrace"
	"millrace/sources/index"
)

// blobStore keeps what was found out about a shard's bytes, by digest and kind. What it loads is whole or not there.
type blobStore interface {
	Load(shard millrace.Digest, kind string) ([]byte, bool)
	Save(shard millrace.Digest, kind string, blob []byte) error
	Close() error
}

// lengthStore remembers the tokens of each record of one shard under one transform, across runs and processes. Safe for
// concurrent use.
type lengthStore interface {
	Get(record uint64) (tokens uint32, ok bool)
	Put(record uint64, tokens uint32)
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
	early  map[uint32][]earlyLength
}

// earlyLength is a length found before its shard's count was known.
type earlyLength struct {
	record uint64
	tokens uint32
	bits   uint32 // of the filters that refuse it
	bad    bool   // it has none
}

func (e *earlyLength) put(st lengthStore, limit int64) {
	if e.bad {
		st.PutBad(e.record, limit)
		return
	}
	st.Put(e.record, e.tokens)
	if f, ok := st.(*filteredLengths); ok {
		f.answers.Put(e.record, e.bits)
	}
}

func openMemory(spec Spec, files index.FS, spare bool, log *slog.Logger) (memory, error) {
	m := memory{mu: new(sync.Mutex), stores: make(map[uint32]lengthStore), early: make(map[uint32][]earlyLength)}
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
				answered, err := store.Lengths(shard, answers, count)
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

// volatileBlobs is the blob store of a source without an index directory.
type volatileBlobs struct {
	mu   sync.Mutex
	kept map[blobKey][]byte
}

type blobKey struct {
	digest millrace.Digest
	kind   string
}

// Load implements blobStore.
func (v *volatileBlobs) Load(d millrace.Digest, kind string) ([]byte, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	blob, ok := v.kept[blobKey{d, kind}]
	return blob, ok
}

// Save implements blobStore.
func (v *volatileBlobs) Save(d millrace.Digest, kind string, blob []byte) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.kept[blobKey{d, kind}] = blob
	return nil
}

// Close implements blobStore.
func (*volatileBlobs) Close() error { return nil }

// sparedBlobs keeps in memory what its disk does not take: a full or broken index directory costs a run work at its next start, not
// its life.
type sparedBlobs struct {
	blobStore
	kept volatileBlobs
	log  *slog.Logger
}

// Load implements blobStore.
func (s *sparedBlobs) Load(d millrace.Digest, kind string) ([]byte, bool) {
	if blob, ok := s.kept.Load(d, kind); ok {
		return blob, true
	}
	return s.blobStore.Load(d, kind)
}

// Save implements blobStore.
func (s *sparedBlobs) Save(d millrace.Digest, kind string, blob []byte) error {
	err := s.blobStore.Save(d, kind, blob)
	if err == nil {
		return nil
	}
	s.log.Warn("an index is kept in memory only, and will be made again at the next start", "err", err)
	return s.kept.Save(d, kind, blob)
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
			count, ok = t.count(), true
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

// remember keeps lengths just found, of one shard.
func (s *Source) remember(shard uint32, found []earlyLength) {
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

// lengthView looks up lengths of many shards: from the format where it knows them, else from the length store.
type lengthView struct {
	src  *Source
	get  map[uint32]func(record uint64) (uint32, bool)
	open []*openShard
}

func (s *Source) newLengthView() *lengthView {
	return &lengthView{src: s, get: make(map[uint32]func(uint64) (uint32, bool))}
}

func noLength(uint64) (uint32, bool) { return 0, false }

// of returns the lookup for one shard.
func (v *lengthView) of(ctx context.Context, shard uint32) (func(uint64) (uint32, bool), error) {
	if get, ok := v.get[shard]; ok {
		return get, nil
	}
	get := noLength
	if v.src.transform.encoding == nil {
		o, err := v.src.shards.acquire(ctx, shard)
		if err != nil {
			return nil, err
		}
		v.open = append(v.open, o)
		if l, ok := o.Shard.(Lengther); ok {
			get = l.Length
		}
	} else if st := v.src.lengthsOf(shard); st != nil {
		get = st.Get
	}
	v.get[shard] = get
	return get, nil
}

// sum adds up the known lengths of a shard. Records known to be bad are known to have none; of formats of tokens, the file's own index says
// what reading may yet find to be bad.
func (v *lengthView) sum(ctx context.Context, shard uint32, count uint64) (tokens, known, refused uint64, err error) {
	get, err := v.of(ctx, shard)
	if err != nil {
		return 0, 0, 0, err
	}
	otherwise, refusals := v.otherwise(shard), v.refusals(shard)
	for r := range count {
		n, ok := get(r)
		if !ok {
			n, ok = otherwise(r)
		}
		if !ok {
			continue
		}
		known++
		if refusals != nil {
			if bits, ok := refusals(r, n); ok && bits&own != 0 {
				refused++
				continue
			}
		}
		tokens += uint64(n)
	}
	return tokens, known, refused, nil
}

// otherwise returns what to count of records without a known length.
func (v *lengthView) otherwise(shard uint32) func(record uint64) (uint32, bool) {
	if v.src.transform.encoding == nil {
		for _, o := range v.open {
			if sizer, ok := o.Shard.(Sizer); ok && o.index == shard {
				return func(r uint64) (uint32, bool) { return sizer.Size(r), true }
			}
		}
		return noLength
	}
	st := v.src.lengthsOf(shard)
	if st == nil {
		return noLength
	}
	return func(r uint64) (uint32, bool) { return 0, st.Bad(r, v.src.spec.Limits.SampleBytes) }
}

// patches returns the lookup of patches in a shard that the view has looked at, nil where it has none.
func (v *lengthView) patches(shard uint32) func(record uint64) uint32 {
	for _, o := range v.open {
		if p, ok := o.Shard.(Patcher); ok && o.index == shard {
			return p.Patches
		}
	}
	return nil
}

func (v *lengthView) close() {
	for _, o := range v.open {
		v.src.shards.release(o)
	}
	v.open = nil
}
