// Package index keeps facts about shards in content-addressed files that several processes share.
//
// A blob is named by its shard's digest and a kind, and never changes. It is written aside and moved into place, so a
// crash leaves it whole or absent. Load checks it and treats a damaged blob as absent. Only the files of [Lengths]
// change in place: each of their entries is valid by itself.
package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"millrace"
)

// A blob's file is a head and the payload. The head, little-endian: magic, u64 bytes of the payload, the shard's
// digest, u64 hash of the kind, 128-bit hash of the payload, u64 hash of the bytes before.
const (
	blobMagic = "MRINDEX1"
	blobHead  = 64
	blobExt   = ".idx"
)

// Options of a store.
type Options struct {
	FS  FS           // default: the operating system's
	Log *slog.Logger // gets a line for each damaged file; default: none
}

// Store is a directory of index files. It is safe for concurrent use, and for use by several processes at once.
type Store struct {
	dir string
	fs  FS
	log *slog.Logger

	// files of writers that died are removed before the first write; a process that only reads does not list the
	// directory
	stale sync.Once

	mu     sync.Mutex
	loaded map[string][]byte // whole files, mapped, by name
	maps   [][]byte          // mappings to remove at Close, superseded ones too
}

// Open opens a store. It makes the directory if it is missing.
func Open(dir string, o Options) (*Store, error) {
	if o.FS == nil {
		o.FS = OSFS()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if err := o.FS.MkdirAll(dir); err != nil {
		return nil, fmt.Errorf("open index directory: %w; set index_dir to a directory that can be written", err)
	}
	return &Store{dir: dir, fs: o.FS, log: o.Log, loaded: make(map[string][]byte)}, nil
}

// Close unmaps all blobs. They must not be used any more.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, m := range s.maps {
		errs = append(errs, unix.Munmap(m))
	}
	s.maps, s.loaded = nil, nil
	return errors.Join(errs...)
}

// Load returns the blob that Save kept for this shard and kind, in this process or another. It is mapped into memory,
// read-only and valid until Close. Load returns false if there is no whole blob.
func (s *Store) Load(shard millrace.Digest, kind string) ([]byte, bool) {
	name := blobName(shard, kind)
	s.mu.Lock()
	defer s.mu.Unlock()
	if b, ok := s.loaded[name]; ok {
		return b[blobHead:], true
	}
	path := filepath.Join(s.dir, name)
	b, err := mapFile(path, unix.PROT_READ, unix.MAP_SHARED)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false
	}
	if err == nil {
		if err = checkBlob(b, shard, kind); err == nil && s.loaded != nil {
			s.loaded[name] = b
			s.maps = append(s.maps, b)
			return b[blobHead:], true
		}
		unix.Munmap(b)
	}
	s.log.Warn("index file is not used and will be made again", "file", path, "err", err)
	return nil, false
}

// Save keeps a blob for this shard and kind in place of an earlier one. An error leaves the earlier one.
func (s *Store) Save(shard millrace.Digest, kind string, blob []byte) error {
	name := blobName(shard, kind)
	err := s.publish(name, true, func(f TempFile) error {
		if _, err := f.Write(blobHeader(shard, kind, blob)); err != nil {
			return err
		}
		_, err := f.Write(blob)
		return err
	})
	if err != nil {
		return fmt.Errorf("save index %s: %w", filepath.Join(s.dir, name), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.loaded, name)
	return nil
}

// Forget makes the next Load look for a blob that another process may have saved. Loaded blobs stay valid.
func (s *Store) Forget(shard millrace.Digest, kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.loaded, blobName(shard, kind))
}

// publish writes a file aside, syncs it and moves it into place. Without replace, a file that is already there stays.
func (s *Store) publish(name string, replace bool, write func(TempFile) error) (err error) {
	s.stale.Do(func() { clearStale(s.dir) })
	f, err := s.fs.CreateTemp(s.dir)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.fs.Remove(f.Name()))
		}
		err = errors.Join(err, f.Close())
	}()
	if err := write(f); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := s.fs.Publish(f.Name(), filepath.Join(s.dir, name), replace); err != nil {
		return err
	}
	// The file is in place. A power failure may lose its name, which costs only work.
	if err := s.fs.SyncDir(s.dir); err != nil {
		s.log.Warn("index directory was not synced", "dir", s.dir, "err", err)
	}
	return nil
}

func blobName(shard millrace.Digest, kind string) string {
	return shard.String() + "-" + kind + blobExt
}

func blobHeader(shard millrace.Digest, kind string, blob []byte) []byte {
	h := make([]byte, 0, blobHead)
	h = append(h, blobMagic...)
	h = binary.LittleEndian.AppendUint64(h, uint64(len(blob)))
	h = append(h, shard[:]...)
	h = binary.LittleEndian.AppendUint64(h, xxh3.HashString(kind))
	sum := xxh3.Hash128(blob).Bytes()
	h = append(h, sum[:]...)
	return binary.LittleEndian.AppendUint64(h, xxh3.Hash(h))
}

func checkBlob(b []byte, shard millrace.Digest, kind string) error {
	if len(b) < blobHead {
		return fmt.Errorf("%d bytes are no index file", len(b))
	}
	if want := blobHeader(shard, kind, b[blobHead:]); string(b[:blobHead]) != string(want) {
		return errors.New("its content does not have the checksum in its head")
	}
	return nil
}

// mapFile maps a whole file.
func mapFile(path string, prot, flags int) ([]byte, error) {
	mode := os.O_RDONLY
	if prot&unix.PROT_WRITE != 0 {
		mode = os.O_RDWR
	}
	f, err := os.OpenFile(path, mode, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() == 0 || !st.Mode().IsRegular() {
		return nil, fmt.Errorf("map %s: it is empty or no regular file", path)
	}
	b, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), prot, flags)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	return b, nil
}
