package checkpoint

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/checkpoint/disk"
	"millrace/internal/failpoint"
)

// Config describes the store to open.
type Config struct {
	// Dir is the store's own folder. Open creates it with its parents.
	Dir string
	// CreatedBy is the program's version, written into the format page of a new store.
	CreatedBy string
	// Disk holds the folder; nil is the operating system's file system.
	Disk *disk.Disk
	// LockWait is the longest wait for another process that has the folder open; 0 refuses at once. Commands that read
	// a stopped run have the folder open for a moment.
	LockWait time.Duration
	// Logger gets slow disks, full disks and damage; nil logs nothing.
	Logger *slog.Logger
	// Fail has the failpoints of tests, before and after writes and in the disk beneath; nil has none.
	Fail *failpoint.Set
	// Fatal ends the process when the disk fails beneath the journal. It gets a one-line error with the directory and
	// the cure. If it is nil or returns, the line goes to standard error and the process exits with status 1.
	Fatal func(error)
}

// Located returns the configuration with its disk and the one name of its folder.
func (c Config) Located() Config {
	if c.Disk == nil {
		c.Disk = disk.System()
		c.Dir = canonical(c.Dir)
	}
	return c
}

func (c Config) withDefaults() Config {
	c = c.Located()
	c.Disk = c.Disk.WithFailpoints(c.Fail)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// canonical returns the same name for every path to a folder, because a process keeps its locks by name.
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

// slowDisk is the shortest duration of a write or fsync that is logged.
const slowDisk = 5 * time.Second

// Open opens the store in cfg.Dir, or creates it. It fails with ErrLocked if another process keeps it open
// for longer than cfg.LockWait.
func Open(cfg Config) (*Store, error) {
	s, err := open(cfg, actOpen, false)
	if err != nil {
		return nil, err
	}
	if flaw := s.journal.flaw(); flaw != "" {
		return nil, errors.Join(corrupt(s.dir, "the journal", flaw), s.Close())
	}
	return s, nil
}

// OpenReadOnly opens an existing store for Verify, Dump and all other reads. It changes nothing in the store and takes
// the same lock as Open. It also opens a damaged store if Pebble can read the files.
func OpenReadOnly(cfg Config) (*Store, error) {
	return open(cfg, actOpenReadOnly, true)
}

func open(cfg Config, act string, readOnly bool) (s *Store, err error) {
	if cfg.Dir == "" {
		return nil, fmt.Errorf("%s: no directory given", act)
	}
	cfg = cfg.withDefaults()
	s = &Store{
		dir: cfg.Dir, disk: cfg.Disk, fail: cfg.Fail, gate: newGate(readOnly),
		reserve: cfg.Disk.Reserve(cfg.Dir, cfg.Logger),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.release())
			s = nil
		}
	}()
	fresh := false
	err = catch(act, cfg.Dir, func() (err error) { s.lock, fresh, err = acquire(cfg, readOnly); return err })
	if err != nil {
		return s, err
	}
	s.fail.Hit("checkpoint/open/before")
	if err := catch(act, cfg.Dir, func() error { return s.openDatabase(cfg, fresh) }); err != nil {
		return s, err
	}
	s.fail.Hit("checkpoint/open/after")
	if err := s.db.checkFormat(cfg.CreatedBy, readOnly); err != nil {
		return s, err
	}
	if s.id, err = identity(cfg, readOnly); err != nil {
		return s, classify(act, cfg.Dir, err)
	}
	if !readOnly {
		if err := cfg.Disk.EndCreation(cfg.Dir); err != nil {
			return s, classify(act, cfg.Dir, err)
		}
		if err := s.reserve.Prepare(); err != nil {
			return s, fmt.Errorf("%s %s: %w", act, cfg.Dir, err)
		}
	}
	err = catch(act, cfg.Dir, func() (err error) {
		s.journal, err = s.db.openJournal(cfg.Disk, readOnly, cfg.Logger)
		return err
	})
	return s, err
}

// acquire creates the folder unless it is opened for reading, and takes its lock.
func acquire(cfg Config, readOnly bool) (lock *pebble.Lock, fresh bool, err error) {
	if readOnly { // a mistyped name creates no folder
		var found bool
		if found, err = cfg.Disk.HasStore(cfg.Dir); err == nil && !found {
			err = fmt.Errorf("%s: %w in %s: %s", actOpenReadOnly, ErrNotFound, cfg.Dir, notFoundCure)
		}
	} else if err = cfg.Disk.Recover(cfg.Dir); err == nil {
		err = cfg.Disk.MakeDir(cfg.Dir)
	}
	if err != nil {
		return nil, false, err
	}
	if lock, err = lockDir(cfg); err != nil || readOnly {
		return lock, false, err
	}
	fresh, err = cfg.Disk.BeginCreation(cfg.Dir)
	return lock, fresh, err
}

// identity returns the name of the copy in the folder. A store that is opened for writing gets one.
func identity(cfg Config, readOnly bool) (string, error) {
	if readOnly {
		return cfg.Disk.Identity(cfg.Dir)
	}
	return cfg.Disk.MakeIdentity(cfg.Dir)
}

// openDatabase opens Pebble above the reserve and a watch for slow writes.
func (s *Store) openDatabase(cfg Config, fresh bool) error {
	fs := cfg.Disk.FS()
	if !s.gate.readOnly {
		slow := func(slow vfs.DiskSlowInfo) {
			cfg.Logger.Warn("checkpoint: slow disk",
				"path", slow.Path, "seconds", slow.Duration.Seconds(), "act", slow.OpType.String())
		}
		fs, s.health = vfs.WithDiskHealthChecks(s.reserve.FS(), slowDisk, nil, slow)
	}
	o := options(fs, &sink{dir: cfg.Dir, logger: cfg.Logger, fatal: cfg.die})
	o.Lock = s.lock
	o.ReadOnly = s.gate.readOnly
	o.ErrorIfNotExists = !fresh // only a fresh folder gets a new database
	db, err := pebble.Open(cfg.Dir, o)
	if err != nil {
		return err
	}
	s.db = &database{dir: cfg.Dir, pebble: db}
	s.ledger, s.snapshots = ledger{s.db}, snapshots{s.db}
	return nil
}

// options keep Pebble small: the store holds a few MiB of journal, and a ledger that is written once and seldom read.
func options(fs vfs.FS, sink *sink) *pebble.Options {
	o := &pebble.Options{
		FS:                          fs,
		FormatMajorVersion:          pebble.FormatTableFormatV6,
		LoggerAndTracer:             sink,
		EventListener:               sink.listener(),
		CacheSize:                   4 << 20,
		MemTableSize:                4 << 20,
		MemTableStopWritesThreshold: 4,
		MaxOpenFiles:                64,
		MaxManifestFileSize:         4 << 20,
		// Pebble frees the space of truncated records soon, also without further writes.
		FlushDelayDeleteRange: 10 * time.Second,
	}
	o.Experimental.FileCacheShards = 1
	return o
}

// checkFormat reads the format page. It writes the page if the store is new.
func (db *database) checkFormat(createdBy string, readOnly bool) error {
	key := []byte{tagFormat}
	value, err := db.get(key)
	if err != nil {
		return err
	}
	if value == nil {
		return db.writeFormat(key, createdBy, readOnly)
	}
	version, by, err := decodeFormat(key, value)
	if err != nil {
		return corrupt(db.dir, "the format page", err.Error())
	}
	if version > formatVersion {
		return fmt.Errorf(
			"open run directory %s: %w: it has format %d, made by millrace %s, and this program knows formats "+
				"up to %d; use that version or a newer one",
			db.dir, ErrNewerFormat, version, by, formatVersion)
	}
	if version < formatVersion {
		return fmt.Errorf(
			"open run directory %s: %w: it has format %d, made by millrace %s, and this program reads format %d; "+
				"finish the run with that version, or start a new run directory from the trainer's newest checkpoint",
			db.dir, ErrOlderFormat, version, by, formatVersion)
	}
	return nil
}

func (db *database) writeFormat(key []byte, createdBy string, readOnly bool) error {
	c := db.scan(nil, nil)
	empty := !c.next()
	if err := c.close(); err != nil {
		return err
	}
	if !empty || readOnly {
		return corrupt(db.dir, "the format page", "it is missing")
	}
	return catch("write format page to", db.dir, func() error {
		return db.pebble.Set(key, encodeFormat(key, formatVersion, createdBy), pebble.Sync)
	})
}
