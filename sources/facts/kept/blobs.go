package kept

import (
	"log/slog"
	"sync"

	"millrace"
)

// blobs stores facts about a shard's bytes, by digest and kind. A loaded blob is whole. Saved blobs reach the disk with
// Flush at the latest.
type blobs interface {
	Load(shard millrace.Digest, kind string) ([]byte, bool)
	Save(shard millrace.Digest, kind string, blob []byte) error
	Flush() error
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

// Flush implements blobs.
func (*volatileBlobs) Flush() error { return nil }

// sparedBlobs continues if the disk refuses blobs: a full or broken directory does not end a run. The index keeps such
// blobs in memory and tries to write them with the next ones.
type sparedBlobs struct {
	blobs
	log *slog.Logger
}

// Save implements blobs.
func (s *sparedBlobs) Save(d millrace.Digest, kind string, blob []byte) error {
	s.spare(s.blobs.Save(d, kind, blob))
	return nil
}

// Flush implements blobs.
func (s *sparedBlobs) Flush() error {
	s.spare(s.blobs.Flush())
	return nil
}

func (s *sparedBlobs) spare(err error) {
	if err != nil {
		s.log.Warn("indexes are kept in memory only, and will be made again at the next start", "err", err)
	}
}
