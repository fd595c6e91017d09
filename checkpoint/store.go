package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/internal/failpoint"
)

// Config says where a store lies and how it speaks.
type Config struct {
	// Dir is the store's own folder; it is made, with its parents, if it is not there.
	Dir string
	// CreatedBy is the program's version, written into the format page of a new store.
	CreatedBy string
	// Disk is what the folder is on; nil is the operating system's file system.
	Disk *Disk
	// Logger hears of slow disks, full disks and damage; nil is silent.
	Logger *slog.Logger
	// Fail is the failpoints of tests: between the stages of a write, and in the disk beneath; nil is none.
	Fail *failpoint.Set
	// Fatal ends the process when the disk fails beneath the journal, with a one-line error that names the directory and the cure. If it is nil or
	// returns, the line goes to standard error and the process exits with status 1.
	Fatal func(error)
}

func (c Config) withDefaults() Config {
	if c.Disk == nil {
		c.Disk = systemDisk()
		c.Dir = canonical(c.Dir)
	}
	if c.Fail.Arms("checkpoint/") {
		c.Disk = &Disk{fs: faultyFS{c.Disk.fs, c.Fail}, ballast: c.Disk.ballast}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// canonical gives a folder one name: the lock of a process is kept by name.
func canonical(dir string) string {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	return dir
}

func (c Config) die(err error) {
	if c.Fatal != nil {
		c.Fatal(err)
	}
	fmt.Fprintln(os.Stderr, "millrace:", err)
	os.Exit(1)
}

const (
	actOpen         = "open run directory"
	actOpenReadOnly = "open run directory for reading"

	// slowDisk is how long one write or fsync may take before the log says so.
	slowDisk = 5 * time.Second
)

// Store is an open checkpoint store. Its methods may be called from several goroutines; commits are made one after the other.
type Store struct {
	dir      string
	disk     *Disk
	db       *pebble.DB
	lock     *pebble.Lock
	health   io.Closer
	tail     vfs.File // see tailName; guarded by commit
	ballast  *ballast
	readOnly bool
	fresh    bool // the folder was empty
	fail     *failpoint.Set

	life lifespan
	// commit is held for the whole of a write, fsync included, and guards what follows. The bounds change only after the fsync.
	commit  sync.Mutex
	bounds  bounds
	written uint64 // see Written
}

// bounds are the ends of the journal and the newest snapshot.
type bounds struct {
	first, last uint64 // first == last+1: no records
	hasSnapshot bool
	snapshot    uint64 // index of the newest
	witnessed   uint64 // a record that is known to have been acknowledged
}

// Open opens the store in cfg.Dir and makes it if there is none. It fails with ErrLocked while another process has it open.
func Open(cfg Config) (*Store, error) {
	s, err := open(cfg, actOpen, false)
	if err != nil {
		return nil, err
	}
	if err := s.checkBounds(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// OpenReadOnly opens an existing store for Verify, Dump and all other reads; it changes nothing in it, and opens damaged stores as far as they can be
// read. It takes the same lock as Open.
func OpenReadOnly(cfg Config) (*Store, error) {
	return open(cfg, actOpenReadOnly, true)
}

func open(cfg Config, act string, readOnly bool) (s *Store, err error) {
	if cfg.Dir == "" {
		return nil, fmt.Errorf("%s: no directory given", act)
	}
	cfg = cfg.withDefaults()
	s = &Store{dir: cfg.Dir, disk: cfg.Disk, readOnly: readOnly, fail: cfg.Fail}
	s.life.init()
	s.ballast = &ballast{fs: cfg.Disk.fs, dir: cfg.Dir, size: cfg.Disk.ballast, logger: cfg.Logger}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.release())
			s = nil
		}
	}()
	if err := fence(act, cfg.Dir, func() error { return s.acquire(cfg) }); err != nil {
		return s, err
	}
	s.fail.Hit("checkpoint/open/before")
	if err := fence(act, cfg.Dir, func() error { return s.openDB(cfg) }); err != nil {
		return s, err
	}
	s.fail.Hit("checkpoint/open/after")
	if err := s.checkFormat(cfg.CreatedBy); err != nil {
		return s, err
	}
	if !readOnly {
		if err := endCreation(cfg.Disk.fs, cfg.Dir); err != nil {
			return s, classify(act, cfg.Dir, err)
		}
	}
	if !readOnly {
		if err := s.ballast.make(); outOfRoom(err) {
			s.ballast.spent.Store(true)
			cfg.Logger.Error("checkpoint: disk full, no room for the reserve", "dir", cfg.Dir)
		} else if err != nil {
			return s, fmt.Errorf("%s %s: %w", act, cfg.Dir, err)
		}
	}
	return s, fence(act, cfg.Dir, func() error {
		if err := s.loadBounds(); err != nil {
			return err
		}
		return s.openTail(cfg.Disk.fs)
	})
}

// acquire makes the folder if it may, and takes its lock.
func (s *Store) acquire(cfg Config) (err error) {
	if s.readOnly { // a mistyped name leaves nothing behind
		err = finished(cfg.Disk.fs, cfg.Dir)
	} else {
		err = makeDir(cfg.Disk.fs, cfg.Dir)
	}
	if err != nil {
		return err
	}
	if s.lock, err = lockDir(cfg.Disk.fs, cfg.Dir); err != nil || s.readOnly {
		return err
	}
	s.fresh, err = beginCreation(cfg.Disk.fs, cfg.Dir)
	return err
}

func (s *Store) openDB(cfg Config) error {
	sink := &sink{dir: cfg.Dir, logger: cfg.Logger, die: cfg.die}
	fs := cfg.Disk.fs
	if !s.readOnly {
		fs, s.health = vfs.WithDiskHealthChecks(orderedFS{s.ballast.watch()}, slowDisk, nil, func(slow vfs.DiskSlowInfo) {
			cfg.Logger.Warn("checkpoint: slow disk", "path", slow.Path, "seconds", slow.Duration.Seconds(), "act", slow.OpType.String())
		})
	}
	db, err := pebble.Open(cfg.Dir, s.options(fs, sink))
	s.db = db
	return err
}

// options keep Pebble small: the store holds a few MiB of journal and a ledger that is written once and seldom read.
func (s *Store) options(fs vfs.FS, sink *sink) *pebble.Options {
	o := &pebble.Options{
		FS:                          fs,
		Lock:                        s.lock,
		ReadOnly:                    s.readOnly,
		ErrorIfNotExists:            !s.fresh, // a lost store is an error, never a new one
		FormatMajorVersion:          pebble.FormatTableFormatV6,
		LoggerAndTracer:             sink,
		EventListener:               sink.listener(),
		CacheSize:                   4 << 20,
		MemTableSize:                4 << 20,
		MemTableStopWritesThreshold: 4,
		MaxOpenFiles:                64,
		MaxManifestFileSize:         4 << 20,
		// Truncated records give their space back soon, though nothing else is written.
		FlushDelayDeleteRange: 10 * time.Second,
	}
	o.Experimental.FileCacheShards = 1
	return o
}

// checkFormat reads the format page, and writes it if the store is new.
func (s *Store) checkFormat(createdBy string) error {
	key := []byte{tagFormat}
	value, err := s.get(key)
	if err != nil {
		return err
	}
	if value == nil {
		return s.writeFormat(key, createdBy)
	}
	version, by, err := decodeFormat(key, value)
	if err != nil {
		return corrupt(s.dir, "the format page", err.Error())
	}
	if version > formatVersion {
		return fmt.Errorf("open run directory %s: %w: it has format %d, made by millrace %s, and this program knows formats up to %d; use that version or a newer one",
			s.dir, ErrNewerFormat, version, by, formatVersion)
	}
	if version < formatVersion {
		return fmt.Errorf("open run directory %s: %w: it has format %d, made by millrace %s, and this program reads format %d; finish the run with that version, or start a new run directory from the trainer's newest checkpoint",
			s.dir, ErrOlderFormat, version, by, formatVersion)
	}
	return nil
}

func (s *Store) writeFormat(key []byte, createdBy string) error {
	c := s.scan(nil, nil)
	empty := !c.next()
	if err := c.close(); err != nil {
		return err
	}
	if !empty || s.readOnly {
		return corrupt(s.dir, "the format page", "it is missing")
	}
	return fence("write format page to", s.dir, func() error {
		return s.db.Set(key, encodeFormat(key, formatVersion, createdBy), pebble.Sync)
	})
}

// Close waits for calls under way, syncs and gives the directory's lock back. Closing twice returns ErrClosed.
func (s *Store) Close() error {
	if !s.life.end() {
		return ErrClosed
	}
	if err := s.release(); err != nil {
		return fmt.Errorf("close run directory %s: %w", s.dir, err)
	}
	return nil
}

// release gives back whatever was acquired, in reverse order.
func (s *Store) release() error {
	var errs []error
	if s.tail != nil {
		errs = append(errs, s.closeTail())
	}
	if s.db != nil {
		errs = append(errs, fence("close", s.dir, s.db.Close))
	}
	if s.health != nil {
		errs = append(errs, s.health.Close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}

// enter begins a call that needs the store to stay open; the caller must call the returned function when it is done.
func (s *Store) enter() (leave func(), err error) {
	if !s.life.enter() {
		return nil, ErrClosed
	}
	return s.life.leave, nil
}

// enterWrite is enter for a call that changes something: it holds the commit lock, too.
func (s *Store) enterWrite() (leave func(), err error) {
	if s.readOnly {
		return nil, ErrReadOnly
	}
	if !s.life.enter() {
		return nil, ErrClosed
	}
	s.commit.Lock()
	return func() { s.commit.Unlock(); s.life.leave() }, nil
}

// apply makes a batch durable.
func (s *Store) apply(act string, b *pebble.Batch) error {
	s.written += uint64(b.Len())
	return fence(act, s.dir, func() error { return errors.Join(s.db.Apply(b, pebble.Sync), b.Close()) })
}
