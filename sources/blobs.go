package sources

import (
	"log/slog"
	"sync"

	"millrace"
)

// blobStore keeps what was found out about a shard's bytes, by digest and kind. What it loads is whole or not there.
type blobStore interface {
	Load(shard millrace.Digest, kind string) ([]byte, bool)
	Save(shard millrace.Digest, kind string, blob []byte) error
	// Forget has the next Load look for what another process may have kept.
	Forget(shard millrace.Digest, kind string)
	Close() error
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

// Forget implements blobStore: no other process has it.
func (*volatileBlobs) Forget(millrace.Digest, string) {}

// Close implements blobStore.
func (*volatileBlobs) Close() error { return nil }

// sparedBlobs keeps in memory what its disk does not take: a full or broken index directory costs a run work at its
// next start, not its life.
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
