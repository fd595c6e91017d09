package index

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"millrace"
)

// The files of a store's directory.
const (
	logName     = "shards.pack"
	lengthsName = "lengths.pack"
	compactName = "shards.pack.new"
)

// Blobs are written in batches, each with one sync. A batch is written when batchBytes wait, or batchEvery after the
// batch before.
const (
	batchBytes = 4 << 20
	batchEvery = 200 * time.Millisecond
)

// Options of a store.
type Options struct {
	FS  FS           // default: the operating system's
	Log *slog.Logger // gets a line for damage; default: none
}

// Store is a directory of facts about shards. It is safe for concurrent use, and for use by several processes at once.
type Store struct {
	dir  string
	fs   FS
	note *slog.Logger

	mu      sync.Mutex
	log     *log
	pending batch  // saved, not written yet
	writing *batch // being written; nil: none
	last    time.Time

	appending sync.Mutex // held while one of the files is written; taken before mu
	retired   []*log     // logs that were replaced; slices of their bytes are in use until Close
	lengths   *lengthsFile
}

// batch is a stretch of records that are not in the log yet.
type batch struct {
	bytes []byte
	at    map[key]int // the newest record of each key
}

// find returns the payload of a key.
func (b *batch) find(k key) ([]byte, bool) {
	if b == nil {
		return nil, false
	}
	at, ok := b.at[k]
	if !ok {
		return nil, false
	}
	r, ok := readRecord(b.bytes[at:])
	return b.bytes[at+recordHead:][:r.size:r.size], ok
}

func (b *batch) add(k key, payload []byte) {
	if b.at == nil {
		b.at = make(map[key]int)
	}
	b.at[k] = len(b.bytes)
	b.bytes = appendRecord(b.bytes, k, payload)
}

// merge returns the records of both batches, those of b first.
func (b *batch) merge(later *batch) batch {
	out := batch{bytes: bytes.Clone(b.bytes), at: b.at}
	for k, at := range later.at {
		out.at[k] = len(b.bytes) + at
	}
	out.bytes = append(out.bytes, later.bytes...)
	return out
}

// Open opens a store. It makes the directory if it is missing. If the files cannot be opened, the store begins empty,
// and Save and Flush return the reason.
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
	s := &Store{dir: dir, fs: o.FS, note: o.Log}
	err := s.reopen(false)
	switch {
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM):
		return nil, fmt.Errorf("open index directory %s: %w; raise the limit of the process, `ulimit -n`", dir, err)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		s.note.Warn("the index directory is not read", "dir", dir, "err", err)
	case err == nil && !s.IsReadOnly():
		s.compact()
	}
	return s, nil
}

// Exists reports whether a directory has the files of a store, or those of an earlier release.
func Exists(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, logName))
	return err == nil || hasOlder(dir)
}

// Dir returns the directory.
func (s *Store) Dir() string { return s.dir }

// IsReadOnly reports whether the files of the directory can be read and not be written, as on a read-only volume. Such
// a store gives the facts that it has. New ones stay in memory.
func (s *Store) IsReadOnly() bool {
	l := s.current()
	return l != nil && l.file.IsReadOnly()
}

// Close writes the blobs that wait, and unmaps everything. Blobs and lengths must not be used any more.
func (s *Store) Close() error {
	err := s.Flush()
	s.appending.Lock()
	defer s.appending.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := []error{err}
	for _, l := range append(s.retired, s.log) {
		if l != nil {
			errs = append(errs, l.close())
		}
	}
	s.log, s.retired, s.pending = nil, nil, batch{}
	errs = append(errs, s.lengths.close())
	s.lengths = nil
	return errors.Join(errs...)
}

// Load returns the blob that Save kept for this shard and kind, in this process or another. It is read-only and valid
// until Close. Load returns false if there is no whole blob.
func (s *Store) Load(shard millrace.Digest, kind string) ([]byte, bool) {
	k := newKey(shard, kind)
	s.mu.Lock()
	defer s.mu.Unlock()
	if b, ok := s.find(k); ok {
		return b, true
	}
	if s.log != nil && s.log.flags&flagOlder == 0 {
		return nil, false
	}
	b, ok := s.older(shard, kind)
	if ok {
		s.pending.add(k, b)
	}
	return b, ok
}

// find returns the newest payload of a key; mu is held. If there is none, it looks for records of other processes.
func (s *Store) find(k key) ([]byte, bool) {
	if b, ok := s.pending.find(k); ok {
		return b, true
	}
	if b, ok := s.writing.find(k); ok {
		return b, true
	}
	if s.log == nil {
		if s.reopenNamed() != nil {
			return nil, false
		}
	}
	if b, ok := s.log.find(k); ok {
		return b, true
	}
	if grown, err := s.log.grown(); err != nil || !grown {
		return nil, false
	}
	s.log.scan(false)
	return s.log.find(k)
}

// reopenNamed opens a log that another process has made meanwhile; mu is held.
func (s *Store) reopenNamed() error {
	if _, err := os.Stat(filepath.Join(s.dir, logName)); err != nil {
		return err
	}
	l, err := openLog(s.fs, filepath.Join(s.dir, logName), false)
	if err == nil {
		s.log = l
		s.scanWhole()
	}
	return err
}

// Save keeps a blob for this shard and kind in place of an earlier one. Load returns it at once. It reaches the disk
// with a later Save, with Flush or with Close. If a batch cannot be written, the error says so; its blobs stay in
// memory, and the next batch tries again.
func (s *Store) Save(shard millrace.Digest, kind string, blob []byte) error {
	k := newKey(shard, kind)
	s.mu.Lock()
	if was, ok := s.find(k); ok && bytes.Equal(was, blob) {
		s.mu.Unlock()
		return nil
	}
	s.pending.add(k, blob)
	due := (len(s.pending.bytes) >= batchBytes || time.Since(s.last) >= batchEvery) &&
		(s.log == nil || !s.log.file.IsReadOnly())
	if due {
		s.last = time.Now() // one of several savers writes the batch
	}
	s.mu.Unlock()
	if due {
		return s.Flush()
	}
	return nil
}

// Flush writes all blobs that wait, with one sync.
func (s *Store) Flush() error {
	if s.IsReadOnly() {
		return nil
	}
	s.appending.Lock()
	defer s.appending.Unlock()
	s.mu.Lock()
	if len(s.pending.bytes) == 0 {
		s.mu.Unlock()
		return nil
	}
	out := s.pending
	s.writing, s.pending = &out, batch{}
	s.mu.Unlock()
	at, err := s.append(out.bytes)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writing, s.last = nil, time.Now()
	if err != nil {
		s.pending = out.merge(&s.pending)
		return fmt.Errorf("save indexes in %s: %w", s.dir, err)
	}
	s.log.add(at, int64(len(out.bytes)))
	return nil
}

// append writes and syncs records; appending is held.
func (s *Store) append(records []byte) (at int64, err error) {
	unlock, err := s.lockLog()
	if err != nil {
		return 0, err
	}
	defer unlock()
	return s.write(records, true)
}

// write writes records behind the log's end and returns their place; the log's lock is held. The caller adds them to
// the table.
func (s *Store) write(records []byte, sync bool) (at int64, err error) {
	s.mu.Lock() // a Load may look at the size
	l := s.log
	at = align(l.size)
	s.mu.Unlock()
	if _, err := l.file.WriteAt(records, at); err != nil {
		return 0, err
	}
	if sync {
		if err := l.file.Sync(); err != nil {
			return 0, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err = l.look()
	return at, err
}

// lockLog takes the lock of the log, which has a name then, and reads all records of other processes; appending is
// held.
func (s *Store) lockLog() (unlock func(), err error) {
	for {
		l := s.current()
		if l == nil {
			if err := s.reopen(true); err != nil {
				return nil, err
			}
			l = s.current()
		}
		if err := lock(l.file, unix.LOCK_EX); err != nil {
			return nil, err
		}
		unlock := func() { _ = lock(l.file, unix.LOCK_UN) }
		s.mu.Lock()
		gone, err := l.look()
		if err == nil && !gone {
			err = s.begin()
			l.scan(true)
			err = errors.Join(err, l.clearTorn())
		}
		s.mu.Unlock()
		switch {
		case err != nil:
			unlock()
			return nil, err
		case !gone:
			return unlock, nil
		}
		unlock()
		s.mu.Lock()
		s.retired, s.log = append(s.retired, l), nil
		s.mu.Unlock()
	}
}

// current returns the open log, or nil. A Load may open one at any time.
func (s *Store) current() *log {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log
}

// begin writes the head of a new log; its lock and mu are held.
func (s *Store) begin() error {
	l := s.log
	if l.size >= logHead {
		return nil
	}
	var flags uint64
	if hasOlder(s.dir) {
		flags = flagOlder
	}
	if _, err := l.file.WriteAt(newLogHead(flags), 0); err != nil {
		return err
	}
	l.flags, l.end = flags, logHead
	if _, err := l.look(); err != nil {
		return err
	}
	if err := s.fs.SyncDir(s.dir); err != nil { // a power failure may lose the file's name, which costs only work
		s.note.Warn("index directory was not synced", "dir", s.dir, "err", err)
	}
	return nil
}

// reopen opens and reads the log. With make, it makes a missing one, and replaces one that is no log.
func (s *Store) reopen(make bool) error {
	path := filepath.Join(s.dir, logName)
	l, err := openLog(s.fs, path, make)
	if errors.Is(err, errNoLog) {
		s.note.Warn("the index is damaged and is made again", "file", path)
		if err = s.fs.Remove(path); err == nil {
			l, err = openLog(s.fs, path, true)
		}
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.log != nil { // a Load opened it meanwhile
		return l.close()
	}
	s.log = l
	s.scanWhole()
	return nil
}

// scanWhole reads the log while no other process writes; mu is held. Without the lock it reads up to the first record
// that is not whole.
func (s *Store) scanWhole() {
	err := lock(s.log.file, unix.LOCK_SH)
	if err == nil {
		defer func() { _ = lock(s.log.file, unix.LOCK_UN) }()
	}
	if _, looked := s.log.look(); looked != nil {
		s.note.Warn("the index is not read", "dir", s.dir, "err", looked)
		return
	}
	if lost := s.log.scan(err == nil); lost > 0 {
		s.note.Warn("a part of the index is damaged; its facts are made again", "dir", s.dir, "bytes", lost)
	}
}

// payloadOf returns the payload of a whole record.
func payloadOf(b []byte, r record) []byte { return b[recordHead:][:r.size:r.size] }

func isWhole(b []byte, r record) bool { return xxh3.Hash(payloadOf(b, r)) == r.sum }
