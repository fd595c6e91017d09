package sources

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/zeebo/xxh3"

	"millrace"
	"millrace/sources/identity"
)

// contentOf returns a comparison of every byte of a shard with the digest that is kept of them, false if none is kept.
func (s *Source) contentOf(sh millrace.Shard) (compare func(ctx context.Context, now, was []identity.File) error, ok bool) {
	g := &guard{src: s, shard: sh, paths: []string{sh.Path}}
	g.content.Store(true)
	if _, content, ok := s.loadIndex(sh); ok && content != nil {
		return func(ctx context.Context, now, was []identity.File) error {
			is, err := s.hashContent(ctx, sh.Path)
			if err == nil && !bytes.Equal(is, content) {
				err = g.changed(now, was, "since it was indexed")
			}
			return err
		}, true
	}
	if deep, ok := s.memory.blobs.Load(sh.Digest, s.kind(kindDeep)); ok {
		return func(_ context.Context, now, was []identity.File) error {
			_, is, err := shardDigest(s.fs, s.spec.Format, sh.Path, true)
			if err == nil && !bytes.Equal(is[:], deep) {
				err = g.changed(now, was, "since all of it was digested")
			}
			return err
		}, true
	}
	return nil, false
}

// hashContent returns the digest of every byte of a file.
func (s *Source) hashContent(ctx context.Context, path string) ([]byte, error) {
	s.log.Info("a file is not known by its times; its content is compared", "file", path)
	f, err := s.fs.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := &contentHash{hash: xxh3.New()}
	r := NewReader(f, 0, f.Size())
	r.Progress(func(int64) { s.patience.tried() })
	buf := make([]byte, 1<<20)
	for ctx.Err() == nil && !s.patience.over() {
		at := r.Offset()
		n, err := r.Read(buf)
		if errors.Is(err, io.EOF) {
			return h.sum(f.Size()), nil
		}
		if err != nil {
			return nil, fmt.Errorf("digest %s: %w", path, err)
		}
		h.add(buf[:n], at)
	}
	return nil, fmt.Errorf("digest %s: %w", path, cmp.Or(ctx.Err(), context.Canceled))
}

// content returns the digest of an open file that was read from its beginning, nil if it was not read in order. What
// the reader of the format left out at the end is read.
func (f *retryFile) content() ([]byte, error) {
	f.hash.mu.Lock()
	rest := NewReader(f, f.hash.next, f.Size())
	f.hash.mu.Unlock()
	if _, err := io.Copy(io.Discard, rest); err != nil {
		return nil, err
	}
	sum := f.hash.sum(f.Size())
	f.hash = nil
	return sum, nil
}

// contentHash hashes a file as it is read from beginning to end. What is read again is passed over. It is safe for
// concurrent use; reads that leave a gap make it useless.
type contentHash struct {
	mu   sync.Mutex
	hash *xxh3.Hasher
	next int64 // bytes below are hashed
	gap  bool
}

func (h *contentHash) add(p []byte, off int64) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch end := off + int64(len(p)); {
	case off > h.next:
		h.gap = true
	case end > h.next:
		h.hash.Write(p[h.next-off:])
		h.next = end
	}
}

// sum returns the digest of a file of this size, nil if not all of it was read in order.
func (h *contentHash) sum(size int64) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gap || h.next != size {
		return nil
	}
	sum := h.hash.Sum128().Bytes()
	return sum[:]
}

// indexContent ends the blob of an index that has the digest of its file's content: 16 bytes of digest and these.
const indexContent = "MRXXH128"

// loadIndex returns what is kept of an index: the format's blob, and the digest of the file's content if it is known.
func (s *Source) loadIndex(sh millrace.Shard) (blob, content []byte, ok bool) {
	blob, ok = s.memory.blobs.Load(sh.Digest, s.kind(kindIndex))
	if rest, found := bytes.CutSuffix(blob, []byte(indexContent)); found && len(rest) >= 16 {
		return rest[: len(rest)-16 : len(rest)-16], rest[len(rest)-16:], ok
	}
	return blob, nil, ok
}

// saveIndex keeps an index, with the digest of its file's content if it is not nil.
func (s *Source) saveIndex(sh millrace.Shard, blob, content []byte) error {
	if content != nil {
		blob = slices.Concat(blob, content, []byte(indexContent))
	}
	return s.memory.blobs.Save(sh.Digest, s.kind(kindIndex), blob)
}
