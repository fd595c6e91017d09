package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Record is one fact of the journal.
type Record struct {
	Index uint64 // its place, from 1; assigned by Append and Commit
	Step  int64  // the step it belongs to, or NoStep
	Kind  uint8  // the writer's own numbering
	Body  []byte
}

// Bounds returns the indices of the first and the last record; last+1 == first when the journal holds none.
func (s *Store) Bounds() (first, last uint64) {
	s.commit.Lock()
	defer s.commit.Unlock()
	return s.bounds.first, s.bounds.last
}

// Replay calls f with every record from index from on, in order, as of now; from may be one past the last. A Body is valid until f returns. The first error
// of f ends it and is returned as it is. Asking for records that were truncated is ErrNotCovered; a hole or a wrong checksum is ErrCorrupt.
func (s *Store) Replay(from uint64, f func(Record) error) error {
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	c, last, err := s.replayCursor(from)
	if err != nil {
		return err
	}
	next := from
	for c.next() {
		r, err := decodeRecord(c.key(), c.value())
		if err != nil && c.err == nil {
			c.err = corrupt(s.dir, fmt.Sprintf("journal record %d", next), err.Error())
		} else if err == nil && r.Index != next {
			c.err = corrupt(s.dir, fmt.Sprintf("journal record %d", next), "it is missing")
		}
		if c.err != nil {
			break
		}
		if err := f(r); err != nil {
			_ = c.close() // f's refusal is what counts
			return err
		}
		next++
	}
	if err := c.close(); err != nil {
		return err
	}
	if next <= last {
		return corrupt(s.dir, fmt.Sprintf("journal record %d", next), "it is missing")
	}
	return nil
}

// replayCursor pins the journal as it is between two writes.
func (s *Store) replayCursor(from uint64) (c *cursor, last uint64, err error) {
	s.commit.Lock()
	defer s.commit.Unlock()
	first, last := s.bounds.first, s.bounds.last
	if from < first || from > last+1 {
		return nil, 0, fmt.Errorf("replay journal in %s from record %d: %w: it holds %d to %d", s.dir, from, ErrNotCovered, first, last)
	}
	return s.scan(indexKey(tagRecord, from), recordEnd(last)), last, nil
}

// recordEnd is the key after record last.
func recordEnd(last uint64) []byte {
	if last == math.MaxUint64 {
		return []byte{tagRecord + 1}
	}
	return indexKey(tagRecord, last+1)
}

// Truncate drops all records below index before. The newest snapshot must cover them, else ErrNotCovered. Truncating what is gone already does nothing.
func (s *Store) Truncate(before uint64) error {
	leave, err := s.enterWrite()
	if err != nil {
		return err
	}
	defer leave()
	if before <= s.bounds.first {
		return nil
	}
	if !s.bounds.hasSnapshot || before > s.bounds.snapshot+1 {
		return fmt.Errorf("truncate journal in %s before record %d: %w: save a snapshot of record %d or later first", s.dir, before, ErrNotCovered, before-1)
	}
	batch := s.db.NewBatch()
	if err := batch.DeleteRange(indexKey(tagRecord, 0), indexKey(tagRecord, before), nil); err != nil {
		return classify("truncate journal in", s.dir, err)
	}
	s.fail.Hit("checkpoint/truncate/before")
	if err := s.apply("truncate journal in", batch); err != nil {
		return err
	}
	s.fail.Hit("checkpoint/truncate/after")
	s.bounds.first = before
	return nil
}

// loadBounds reads the ends of the journal from the keys alone.
func (s *Store) loadBounds() error {
	b := bounds{first: 1}
	snapshot, ok, err := s.edge(tagSnapshot, (*cursor).last)
	if err != nil {
		return err
	}
	b.hasSnapshot, b.snapshot = ok, snapshot
	first, ok, err := s.edge(tagRecord, (*cursor).next)
	if err != nil {
		return err
	}
	if !ok {
		b.last, b.first = b.snapshot, b.snapshot+1
		s.bounds = b
		return nil
	}
	b.first = first
	b.last, _, err = s.edge(tagRecord, (*cursor).last)
	s.bounds = b
	return err
}

// edge returns the index of the first or last key of one kind.
func (s *Store) edge(tag byte, seek func(*cursor) bool) (index uint64, ok bool, err error) {
	c := s.scanTag(tag)
	if seek(c) {
		if index, ok = parseIndexKey(c.key()); !ok {
			c.err = corrupt(s.dir, "a key", fmt.Sprintf("%x is no key of this store", c.key()))
		}
	}
	return index, ok, c.close()
}

// checkBounds holds the store to invariants 2 and 3 of docs/format.md.
func (s *Store) checkBounds() error {
	if what := s.bounds.flaw(); what != "" {
		return corrupt(s.dir, "the journal", what)
	}
	return nil
}

func (b bounds) flaw() string {
	switch {
	case b.witnessed > b.last:
		return fmt.Sprintf("it ends at record %d, but record %d was acknowledged", b.last, b.witnessed)
	case b.hasSnapshot && b.snapshot > b.last:
		return fmt.Sprintf("it ends at record %d, before the newest snapshot at %d", b.last, b.snapshot)
	case b.first > 1 && (!b.hasSnapshot || b.first > b.snapshot+1):
		return fmt.Sprintf("it begins at record %d, and no snapshot covers what was before", b.first)
	}
	return ""
}

// tailName is a file of tailSize bytes: the index of the last acknowledged record (u64) and a CRC32C of these eight bytes. It is written after the commit's
// fsync and not synced itself, so what it says is true and may be old. Pebble takes damage near the end of its log for a torn write, which nobody
// acknowledged, and drops it in silence; this file knows better.
const (
	tailName = "TAIL"
	tailSize = 8 + crcSize
)

// openTail reads the witness into the bounds and, unless the store is read-only, keeps the file open.
func (s *Store) openTail(fs vfs.FS) (err error) {
	path := fs.PathJoin(s.dir, tailName)
	if s.readOnly {
		if s.tail, err = fs.Open(path); errors.Is(err, os.ErrNotExist) {
			return nil
		}
	} else {
		s.tail, err = fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	}
	if err != nil {
		return err
	}
	var b [tailSize]byte
	n, err := s.tail.ReadAt(b[:], 0)
	if err != nil && err != io.EOF {
		return err
	}
	if n == tailSize && crc32.Checksum(b[:8], castagnoli) == binary.LittleEndian.Uint32(b[8:]) {
		s.bounds.witnessed = binary.LittleEndian.Uint64(b[:])
	}
	return nil
}

// witness notes that last was acknowledged. That it could not is worth a line, but the commit stands.
func (s *Store) witness(last uint64) {
	b := binary.LittleEndian.AppendUint64(nil, last)
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	if _, err := s.tail.WriteAt(b, 0); err != nil {
		s.ballast.logger.Warn("checkpoint: cannot note the journal's end", "dir", s.dir, "err", err)
	}
	s.bounds.witnessed = last
}

// closeTail makes the witness durable.
func (s *Store) closeTail() error {
	if s.readOnly {
		return s.tail.Close()
	}
	return errors.Join(s.tail.Sync(), s.tail.Close())
}
