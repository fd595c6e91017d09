package kept

import (
	"log/slog"
	"sync"

	"millrace"
)

// blobs stores facts about a shard's bytes, by digest and kind. A loaded blob is whole.
type blobs interface {
	Load(shard millrace.Digest, kind string) ([]byte, bool)
	Save(shard millrace.Digest, kind string, blob []byte) error
	Forget(shard millrace.Digest, kind string)
	Close() error
}

// volatileBlobs is the blob store of a source without a directory.
type volatileBlobs struct {
	mu   sync.Mutex
	kept map[blobKey][]byte
}

type blobKey struct {
	digest millrace.Digest
	kind   string
}

func newVolatileBlobs() *volatileBlobs { return &volatileBlobs{kept: make(map[blobKey][]byte)} }

// Load implements blobs.
func (v *volatileBlobs) Load(d millrace.Digest, kind string) ([]byte, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	blob, ok := v.kept[blobKey{d, kind}]
	return blob, ok
}

// Save implements blobs.
func (v *volatileBlobs) Save(d millrace.Digest, kind string, blob []byte) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.kept[blobKey{d, kind}] = blob
	return nil
}

// Forget implements blobs: no other process has a blob.
func (*volatileBlobs) Forget(millrace.Digest, string) {}

// Close implements blobs.
func (*volatileBlobs) Close() error { return nil }

// sparedBlobs keeps in memory the blobs that its disk refuses: a full or broken directory does not end a run; the next
// start makes the blobs again.
type sparedBlobs struct {
	blobs
	memory *volatileBlobs
	log    *slog.Logger
}

// Load implements blobs.
func (s *sparedBlobs) Load(d millrace.Digest, kind string) ([]byte, bool) {
	if blob, ok := s.memory.Load(d, kind); ok {
		return blob, true
	}
	return s.blobs.Load(d, kind)
}

// Save implements blobs.
func (s *sparedBlobs) Save(d millrace.Digest, kind string, blob []byte) error {
	err := s.blobs.Save(d, kind, blob)
	if err == nil {
		return nil
	}
	s.log.Warn("an index is kept in memory only, and will be made again at the next start", "err", err)
	return s.memory.Save(d, kind, blob)
}
