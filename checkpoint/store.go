package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/cockroachdb/pebble/v2"

	"millrace/checkpoint/disk"
	"millrace/internal/failpoint"
)

// Store is an open checkpoint store. Its methods may be called from several goroutines. Writes are made one after the
// other.
type Store struct {
	dir     string
	disk    *disk.Disk
	lock    *pebble.Lock
	health  io.Closer // the watch for slow writes; nil in a store for reading
	reserve *disk.Reserve
	fail    *failpoint.Set
	id      string

	gate      *gate
	db        *database
	journal   *journal // guarded by gate.writing
	feeds     feeds    // guarded by gate.writing
	ledger    ledger
	snapshots snapshots
}

// Close waits for calls in progress, syncs and gives the directory's lock back. A second Close returns ErrClosed.
func (s *Store) Close() error {
	if !s.gate.close() {
		return ErrClosed
	}
	if err := s.release(); err != nil {
		return fmt.Errorf("close run directory %s: %w", s.dir, err)
	}
	return nil
}

// release gives everything back that was acquired, in reverse order.
func (s *Store) release() error {
	var errs []error
	if s.journal != nil {
		errs = append(errs, s.journal.tail.Close())
	}
	if s.db != nil {
		errs = append(errs, catch("close", s.dir, s.db.pebble.Close))
	}
	if s.health != nil {
		errs = append(errs, s.health.Close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}

// ID returns the random name of this copy of the journal. It is "" only in a store for reading that was never written
// since copies have names.
func (s *Store) ID() string { return s.id }

// write makes a batch durable, hands it to the followers, and closes it. All writes of an open store come here.
func (s *Store) write(act string, batch *pebble.Batch) error {
	followed := s.feeds.copyOf(batch) // before Pebble takes the bytes of a large batch
	if err := s.db.apply(act, batch); err != nil {
		return err
	}
	if followed != nil {
		s.fail.Hit("checkpoint/feed/before")
	}
	s.feeds.send(followed)
	return nil
}

// Append makes records durable in one atomic batch with one fsync, and returns the index of the last. The caller may
// reuse the bodies afterwards.
func (s *Store) Append(records ...Record) (last uint64, err error) {
	return s.Commit(Commit{Records: records})
}

// Commit makes c durable in one atomic batch with one fsync, and returns the index of the journal's last record. The
// caller may reuse the bodies afterwards. All bodies together have at most 256 MiB. On error no part of c was written.
// The error is ErrConflict if a step is sealed already with other content, and ErrDiskFull if there is no room.
func (s *Store) Commit(c Commit) (last uint64, err error) {
	if err := c.validate(); err != nil {
		return 0, fmt.Errorf("commit to journal: %w", err)
	}
	leave, err := s.gate.enterWrite()
	if err != nil {
		return 0, err
	}
	defer leave()
	if c.isEmpty() {
		return s.journal.last, nil
	}
	if err := s.hasRoom(); err != nil {
		return 0, err
	}
	batch := s.db.pebble.NewBatchWithSize(c.size())
	if last, err = c.gather(batch, s.journal, s.ledger); err != nil {
		return 0, errors.Join(err, batch.Close())
	}
	s.fail.Hit("checkpoint/commit/before")
	if err := s.write("commit to journal in", batch); err != nil {
		return 0, err
	}
	s.fail.Hit("checkpoint/commit/after")
	s.journal.last = last
	s.journal.witness(last)
	s.fail.Hit("checkpoint/witness/after")
	return last, nil
}

// Bounds returns the indices of the first and the last record; last+1 == first if the journal holds none.
func (s *Store) Bounds() (first, last uint64) {
	b := s.currentBounds()
	return b.first, b.last
}

func (s *Store) currentBounds() bounds {
	s.gate.writing.Lock()
	defer s.gate.writing.Unlock()
	return s.journal.bounds
}

// Replay calls f with every present record from index from on, in order. from may be one past the last. A Body is valid
// until f returns. The first error of f ends the replay and is returned unchanged. The error is ErrNotCovered if record
// from was truncated, and ErrCorrupt at a hole or a wrong checksum.
func (s *Store) Replay(from uint64, f func(Record) error) error {
	leave, err := s.gate.enter()
	if err != nil {
		return err
	}
	defer leave()
	s.gate.writing.Lock() // the cursor and last show the same moment
	c, err := s.journal.scan(from)
	last := s.journal.last
	s.gate.writing.Unlock()
	if err != nil {
		return err
	}
	return c.replay(from, last, f)
}

// Truncate drops all records below index before. The error is ErrNotCovered if the newest snapshot does not cover them.
// Truncate does nothing if there are no such records.
func (s *Store) Truncate(before uint64) error {
	leave, err := s.gate.enterWrite()
	if err != nil {
		return err
	}
	defer leave()
	batch, err := s.journal.truncation(before)
	if batch == nil {
		return err
	}
	s.fail.Hit("checkpoint/truncate/before")
	if err := s.write("truncate journal in", batch); err != nil {
		return err
	}
	s.fail.Hit("checkpoint/truncate/after")
	s.journal.first = before
	return nil
}

// SaveSnapshot makes the state after record index durable. Snapshots are taken in order: index is not below the newest
// snapshot's and not above the journal's end. Older snapshots stay until DropSnapshots.
func (s *Store) SaveSnapshot(index uint64, step int64, body []byte) error {
	leave, err := s.gate.enterWrite()
	if err != nil {
		return err
	}
	defer leave()
	snap := Snapshot{Index: index, Step: step, Body: body}
	if err := snap.validate(s.journal.bounds); err != nil {
		return fmt.Errorf("save snapshot of record %d: %w", index, err)
	}
	if err := s.hasRoom(); err != nil {
		return err
	}
	batch := s.db.pebble.NewBatch()
	if err := s.snapshots.save(batch, snap); err != nil {
		return err
	}
	s.fail.Hit("checkpoint/snapshot/before")
	if err := s.write("save snapshot in", batch); err != nil {
		return err
	}
	s.fail.Hit("checkpoint/snapshot/after")
	s.journal.hasSnapshot, s.journal.snapshot = true, index
	return nil
}

// NewestSnapshot returns the snapshot to start from, and whether there is one. The Body is the caller's.
func (s *Store) NewestSnapshot() (Snapshot, bool, error) { return s.SnapshotBefore(math.MaxUint64) }

// SnapshotBefore returns the newest snapshot at or before record index, and whether there is one. The Body is the
// caller's.
func (s *Store) SnapshotBefore(index uint64) (Snapshot, bool, error) {
	leave, err := s.gate.enter()
	if err != nil {
		return Snapshot{}, false, err
	}
	defer leave()
	return s.snapshots.before(index)
}

// DropSnapshots deletes all snapshots below record index before, except the newest.
func (s *Store) DropSnapshots(before uint64) error {
	leave, err := s.gate.enterWrite()
	if err != nil {
		return err
	}
	defer leave()
	before = min(before, s.journal.snapshot)
	if !s.journal.hasSnapshot || before == 0 {
		return nil
	}
	batch := s.db.pebble.NewBatch()
	if err := s.snapshots.drop(batch, before); err != nil {
		return err
	}
	s.fail.Hit("checkpoint/dropsnapshots/before")
	return s.write("drop snapshots in", batch)
}

// Entry returns the ledger's entry of a step, and whether the step was ever sealed.
func (s *Store) Entry(k StepKey) (Entry, bool, error) {
	leave, err := s.gate.enter()
	if err != nil {
		return Entry{}, false, err
	}
	defer leave()
	return s.ledger.entry(k)
}

// EntryBefore returns a stream's last entry at or before a key, in key order, and whether there is one.
func (s *Store) EntryBefore(k StepKey) (Entry, bool, error) {
	leave, err := s.gate.enter()
	if err != nil {
		return Entry{}, false, err
	}
	defer leave()
	return s.ledger.entryBefore(k)
}

// IndexEntryBefore returns the last index entry of the key's stream and attempt at or before the key's step, and
// whether there is one.
func (s *Store) IndexEntryBefore(k StepKey) (IndexEntry, bool, error) {
	leave, err := s.gate.enter()
	if err != nil {
		return IndexEntry{}, false, err
	}
	defer leave()
	return s.ledger.indexEntryBefore(k)
}

// IndexEntries calls f with every index entry in [from, to), in key order. The first error of f ends the call and is
// returned unchanged.
func (s *Store) IndexEntries(from, to StepKey, f func(IndexEntry) error) error {
	leave, err := s.gate.enter()
	if err != nil {
		return err
	}
	defer leave()
	return s.ledger.indexEntries(from, to, f)
}

// Plan returns a step's plan, and whether it is still kept. The bytes are the caller's.
func (s *Store) Plan(k StepKey) ([]byte, bool, error) {
	leave, err := s.gate.enter()
	if err != nil {
		return nil, false, err
	}
	defer leave()
	return s.ledger.plan(k)
}

// Ledger calls f with every present entry in [from, to), in key order. A zero from begins at the first key, a zero to
// ends after the last. The first error of f ends the call and is returned unchanged.
func (s *Store) Ledger(from, to StepKey, f func(Entry) error) error {
	leave, err := s.gate.enter()
	if err != nil {
		return err
	}
	defer leave()
	return s.ledger.entries(from, to, f)
}

// DropPlans deletes the plans of all steps below before, in every attempt of a stream. Their entries stay.
func (s *Store) DropPlans(stream string, before uint64) error {
	if err := validateStream(stream); err != nil {
		return fmt.Errorf("drop plans: %w", err)
	}
	leave, err := s.gate.enterWrite()
	if err != nil {
		return err
	}
	defer leave()
	s.fail.Hit("checkpoint/dropplans/before")
	batch := s.db.pebble.NewBatch()
	if err := s.ledger.dropPlans(batch, stream, before); err != nil {
		return err
	}
	if batch.Empty() {
		return batch.Close()
	}
	return s.write("drop plans in", batch)
}

// Compact rewrites the files so that they hold only data that is still in the store. It takes as long as reading and
// writing that data. Commits continue meanwhile. Full logs, some MiB, are kept for reuse until the store is opened
// again.
func (s *Store) Compact(ctx context.Context) error {
	if s.gate.readOnly {
		return ErrReadOnly
	}
	leave, err := s.gate.enter()
	if err != nil {
		return err
	}
	defer leave()
	if err := s.hasRoom(); err != nil {
		return err
	}
	return catch("compact", s.dir, func() error {
		return s.db.pebble.Compact(ctx, []byte{tagFormat}, []byte{tagEnd}, false)
	})
}

// Room returns the free bytes and all bytes of the store's file system. The store's own reserve does not count as free.
func (s *Store) Room() (free, total uint64, err error) {
	leave, err := s.gate.enter()
	if err != nil {
		return 0, 0, err
	}
	defer leave()
	if free, total, err = s.disk.Room(s.dir); err != nil {
		return 0, 0, fmt.Errorf("read the free space of the file system of %s: %w", s.dir, err)
	}
	return free, total, nil
}

// hasRoom returns ErrDiskFull while the reserve is spent and cannot be written again.
func (s *Store) hasRoom() error {
	if err := s.reserve.Restore(); err != nil {
		return diskFull(s.dir, err)
	}
	return nil
}

// Verify reads every value and checks the invariants of docs/bytes-on-disk.md. The report lists the problems. An error
// means only that Verify could not run. No other call should run meanwhile: open the store with OpenReadOnly.
func (s *Store) Verify() (Report, error) {
	leave, err := s.gate.enter()
	if err != nil {
		return Report{}, err
	}
	defer leave()
	return s.db.verify(s.currentBounds()), nil
}

// Dump prints every value in the store, one line each: the format page, snapshots, journal, ledger entries, plans and
// index entries. It marks a damaged value, continues, and returns ErrCorrupt at the end.
func (s *Store) Dump(w io.Writer, o DumpOptions) error {
	leave, err := s.gate.enter()
	if err != nil {
		return err
	}
	defer leave()
	return s.db.dump(w, o)
}
