package checkpoint

import (
	"fmt"
	"math"
)

// Snapshot is the full state after all records up to and including Index.
type Snapshot struct {
	Index uint64
	Step  int64 // the step the state stands at, or NoStep
	Body  []byte
}

// SaveSnapshot makes the state after record index durable. Snapshots are taken in order: index is not below the newest one's and not above the journal's
// end. Older snapshots stay until DropSnapshots.
func (s *Store) SaveSnapshot(index uint64, step int64, body []byte) error {
	leave, err := s.enterWrite()
	if err != nil {
		return err
	}
	defer leave()
	switch {
	case index > s.bounds.last:
		return fmt.Errorf("save snapshot of record %d: %w: the journal ends at %d", index, ErrNotCovered, s.bounds.last)
	case s.bounds.hasSnapshot && index < s.bounds.snapshot:
		return fmt.Errorf("save snapshot of record %d: %w: there is one of record %d already", index, ErrNotCovered, s.bounds.snapshot)
	case step < NoStep:
		return fmt.Errorf("save snapshot of record %d: step %d is not a step", index, step)
	case len(body) > maxCommit:
		return fmt.Errorf("save snapshot of record %d: it has %d bytes, at most %d are allowed", index, len(body), maxCommit)
	}
	if err := s.ballast.room(); err != nil {
		return err
	}
	key := indexKey(tagSnapshot, index)
	batch := s.db.NewBatch()
	if err := batch.Set(key, encodeSnapshot(key, Snapshot{Step: step, Body: body}), nil); err != nil {
		return classify("save snapshot in", s.dir, err)
	}
	s.fail.Hit("checkpoint/snapshot/before")
	if err := s.apply("save snapshot in", batch); err != nil {
		return err
	}
	s.fail.Hit("checkpoint/snapshot/after")
	s.bounds.hasSnapshot, s.bounds.snapshot = true, index
	return nil
}

// NewestSnapshot returns the snapshot to start from, and whether there is one. The Body is the caller's.
func (s *Store) NewestSnapshot() (Snapshot, bool, error) { return s.SnapshotBefore(math.MaxUint64) }

// SnapshotBefore returns the newest snapshot at or before record index, and whether there is one. The Body is the caller's.
func (s *Store) SnapshotBefore(index uint64) (snap Snapshot, ok bool, err error) {
	leave, err := s.enter()
	if err != nil {
		return Snapshot{}, false, err
	}
	defer leave()
	upper := []byte{tagSnapshot + 1}
	if index < math.MaxUint64 {
		upper = indexKey(tagSnapshot, index+1)
	}
	c := s.scan([]byte{tagSnapshot}, upper)
	if c.last() {
		at, _ := parseIndexKey(c.key())
		snap, err = decodeSnapshot(c.key(), c.value())
		if err != nil && c.err == nil {
			c.err = corrupt(s.dir, fmt.Sprintf("snapshot of record %d", at), err.Error())
		}
		snap.Body, ok = append([]byte{}, snap.Body...), true
	}
	if err := c.close(); err != nil {
		return Snapshot{}, false, err
	}
	return snap, ok, nil
}

// DropSnapshots deletes all snapshots below record index before, except the newest.
func (s *Store) DropSnapshots(before uint64) error {
	leave, err := s.enterWrite()
	if err != nil {
		return err
	}
	defer leave()
	before = min(before, s.bounds.snapshot)
	if !s.bounds.hasSnapshot || before == 0 {
		return nil
	}
	batch := s.db.NewBatch()
	if err := batch.DeleteRange(indexKey(tagSnapshot, 0), indexKey(tagSnapshot, before), nil); err != nil {
		return classify("drop snapshots in", s.dir, err)
	}
	s.fail.Hit("checkpoint/dropsnapshots/before")
	return s.apply("drop snapshots in", batch)
}
