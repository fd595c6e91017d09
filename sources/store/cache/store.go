package cache

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"millrace"
	"millrace/sources"
	"millrace/sources/store/remedy"
)

// Config sets the directory of a store.
type Config struct {
	Dir   string // made if it is not there
	Limit int64  // bytes of all entries, also of those being written
	FS    FS     // default: the operating system's
	Log   *slog.Logger
}

// Store is a directory of entries. Several processes of a host may use it at the same time. It is safe for concurrent
// use, and holds no files open by itself.
type Store struct {
	room room
	log  *slog.Logger

	filled atomic.Uint64 // entries written by this process
	counts counts
	mu     sync.Mutex
	full   time.Time // no writes until then, because a disk was full
	filler *Filler   // nil: missing entries stay missing
}

var _ sources.Cache = (*Store)(nil)

// Open opens a store. It creates the directory, and refuses one that cannot be read. It writes nothing to one that can
// only be read.
func Open(c Config) (*Store, error) {
	if c.FS == nil {
		c.FS = OSFS()
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s := &Store{room: room{dir: c.Dir, ext: entryExt, limit: c.Limit, fs: c.FS, started: time.Now()}, log: c.Log}
	if err := s.room.open(); err != nil && !errors.Is(err, errNoRoom) {
		return nil, fmt.Errorf("open token cache %s: %w", c.Dir, err)
	}
	return s, nil
}

func (s *Store) path(key millrace.Digest) string {
	return filepath.Join(s.room.dir, key.String()+entryExt)
}

// open returns the entry of a key, nil if there is none. It removes a damaged one.
func (s *Store) open(key millrace.Digest, of string) *entry {
	path := s.path(key)
	f, err := s.room.fs.Open(path)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			s.log.Warn(
				"an entry of the token cache cannot be opened; its shard is read instead",
				"shard",
				of,
				"err",
				err,
			)
		}
		return nil
	}
	if !f.Lock(false) || !f.IsAt(path) { // it is being removed
		f.Close()
		return nil
	}
	e, err := openEntry(f, key)
	if err != nil {
		if r, known := remedy.Of(err); known && r != remedy.Final {
			s.counts.setTrouble(err) // the host fails to read it
		} else {
			s.drop(key, f, of, err)
		}
		f.Close()
		return nil
	}
	s.touch(path)
	return e
}

// touch notes the use of an entry. A failure only makes the entry look older.
func (s *Store) touch(path string) {
	if st, err := os.Stat(path); err == nil && st.ModTime().Before(s.room.started) {
		_ = os.Chtimes(path, time.Time{}, time.Now())
	}
}

// drop removes a damaged entry.
func (s *Store) drop(key millrace.Digest, f File, of string, cause error) {
	path := s.path(key)
	s.counts.damaged.Add(1)
	if s.filler != nil {
		s.filler.again(key)
	}
	s.log.Warn("an entry of the token cache is damaged and is removed; its shard is read instead", "shard", of,
		"entry", path, "err", cause)
	err := s.room.change(0, func() (int64, error) {
		size, err := f.Size()
		if err != nil || !f.IsAt(path) {
			return 0, err
		}
		return -size, s.room.fs.Remove(path)
	})
	if err != nil && !errors.Is(err, errNoRoom) && !errors.Is(err, errReadOnly) {
		s.log.Warn("a damaged entry of the token cache cannot be removed", "entry", path, "err", err)
	}
}

// fullWait is the time without writes after a disk was full.
const fullWait = time.Minute

// isFull reports whether writes are suspended for now.
func (s *Store) isFull() bool {
	if s.room.isFixed {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Before(s.full)
}

// setFull stops writing for a while.
func (s *Store) setFull(cause error) {
	s.counts.setTrouble(cause)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.full.IsZero() {
		s.log.Warn(
			"the disk of the token cache is full; shards are read instead, and writing is tried again every minute",
			"dir",
			s.room.dir,
			"err",
			cause,
		)
	}
	s.full = time.Now().Add(fullWait)
}
