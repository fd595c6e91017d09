package checkpoint

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"math"

	"github.com/cockroachdb/pebble/v2"

	"millrace/checkpoint/disk"
)

// Record is one fact of the journal.
type Record struct {
	Index uint64 // its place, from 1; assigned by Append and Commit
	Step  int64  // the step it belongs to, or NoStep
	Kind  uint8  // the writer's own numbering
	Body  []byte
}

// bounds are the ends of the journal and the newest snapshot, as far as they are durable.
type bounds struct {
	first, last uint64 // first == last+1: no records
	hasSnapshot bool
	snapshot    uint64 // index of the newest
	witnessed   uint64 // a record that was acknowledged, according to the file TAIL
}

// flaw describes which of the invariants 2 and 3 of docs/bytes-on-disk.md is broken, "" if none is.
func (b bounds) flaw() string {
	switch {
	case b.witnessed > b.last:
		return fmt.Sprintf("it ends at record %d, but record %d was acknowledged", b.last, b.witnessed)
	case b.hasSnapshot && b.snapshot > b.last:
		return fmt.Sprintf("it ends at record %d, before the newest snapshot at %d", b.last, b.snapshot)
	case b.first > 1 && (!b.hasSnapshot || b.first > b.snapshot+1):
		return fmt.Sprintf("it begins at record %d, and no snapshot covers the records before", b.first)
	}
	return ""
}

// journal reads records and prepares writes. The store applies the writes and moves the bounds after their fsync.
type journal struct {
	db   *database
	tail disk.Tail
	bounds
}

// openJournal reads the ends of a journal and opens its witness. A flaw of the journal is no error: the caller asks
// bounds.flaw.
func (db *database) openJournal(d *disk.Disk, readOnly bool, logger *slog.Logger) (*journal, error) {
	b, err := db.readBounds()
	if err != nil {
		return nil, err
	}
	t, err := d.OpenTail(db.dir, readOnly, logger)
	if err != nil {
		return nil, err
	}
	j := &journal{db: db, tail: t, bounds: b}
	j.witnessed, err = t.Index()
	return j, err
}

// readBounds reads the ends of the journal from the keys alone.
func (db *database) readBounds() (b bounds, err error) {
	if b.snapshot, b.hasSnapshot, err = db.edge(tagSnapshot, (*cursor).last); err != nil {
		return b, err
	}
	first, ok, err := db.edge(tagRecord, (*cursor).next)
	if err != nil {
		return b, err
	}
	if !ok {
		b.first, b.last = b.snapshot+1, b.snapshot
		return b, nil
	}
	b.first = first
	b.last, _, err = db.edge(tagRecord, (*cursor).last)
	return b, err
}

// append adds records to a batch, and returns the journal's last index with these records.
func (j *journal) append(batch *pebble.Batch, records []Record) (last uint64, err error) {
	for i, r := range records {
		key := indexKey(tagRecord, j.last+1+uint64(i))
		if err := batch.Set(key, encodeRecord(key, r), nil); err != nil {
			return 0, classify("commit to journal in", j.db.dir, err)
		}
	}
	return j.last + uint64(len(records)), nil
}

// witness notes that record last was acknowledged.
func (j *journal) witness(last uint64) {
	j.tail.Witness(last)
	j.witnessed = last
}

// scan returns a cursor over the present records from index from on.
func (j *journal) scan(from uint64) (*cursor, error) {
	if from < j.first || from > j.last+1 {
		return nil, fmt.Errorf("replay journal in %s from record %d: %w: it holds %d to %d",
			j.db.dir, from, ErrNotCovered, j.first, j.last)
	}
	return j.db.scan(indexKey(tagRecord, from), recordEnd(j.last)), nil
}

// recordEnd is the key after record last.
func recordEnd(last uint64) []byte {
	if last == math.MaxUint64 {
		return []byte{tagRecord + 1}
	}
	return indexKey(tagRecord, last+1)
}

// replay reads the records next to last from a cursor, calls f with each, and closes the cursor.
func (c *cursor) replay(next, last uint64, f func(Record) error) error {
	damaged := func(what string) error { return corrupt(c.db.dir, fmt.Sprintf("journal record %d", next), what) }
	for c.next() {
		r, err := decodeRecord(c.key(), c.value())
		if err != nil && c.err == nil {
			c.err = damaged(err.Error())
		} else if err == nil && r.Index != next {
			c.err = damaged("it is missing")
		}
		if c.err != nil {
			break
		}
		if err := f(r); err != nil {
			_ = c.close() // the error of f counts
			return err
		}
		next++
	}
	if err := c.close(); err != nil {
		return err
	}
	if next <= last {
		return damaged("it is missing")
	}
	return nil
}

// truncation returns a batch that drops all records below index before. The batch is nil if there are none. The error
// is ErrNotCovered if no snapshot covers them.
func (j *journal) truncation(before uint64) (*pebble.Batch, error) {
	if before <= j.first {
		return nil, nil
	}
	if !j.hasSnapshot || before > j.snapshot+1 {
		return nil, fmt.Errorf(
			"truncate journal in %s before record %d: %w: save a snapshot of record %d or later first", j.db.dir,
			before, ErrNotCovered, before-1)
	}
	batch := j.db.pebble.NewBatch()
	if err := batch.DeleteRange(indexKey(tagRecord, 0), indexKey(tagRecord, before), nil); err != nil {
		return nil, classify("truncate journal in", j.db.dir, err)
	}
	return batch, nil
}

func encodeRecord(key []byte, r Record) []byte {
	v := append(newValue(recordHead+len(r.Body)), r.Kind)
	v = binary.LittleEndian.AppendUint64(v, uint64(r.Step))
	return seal(key, append(v, r.Body...))
}

// decodeRecord aliases value.
func decodeRecord(key, value []byte) (Record, error) {
	if err := unseal(key, value, recordHead); err != nil {
		return Record{}, err
	}
	index, ok := parseIndexKey(key)
	if !ok {
		return Record{}, errShort
	}
	step := int64(binary.LittleEndian.Uint64(value[crcSize+1:]))
	return Record{Index: index, Step: step, Kind: value[crcSize], Body: value[recordHead:]}, nil
}
