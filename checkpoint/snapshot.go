package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/cockroachdb/pebble/v2"
)

// Snapshot is the full state after all records up to and including Index.
type Snapshot struct {
	Index uint64
	Step  int64 // the step of the state, or NoStep
	Body  []byte
}

// validate checks a new snapshot against the journal and the newest snapshot.
func (s Snapshot) validate(b bounds) error {
	switch {
	case s.Index > b.last:
		return fmt.Errorf("%w: the journal ends at %d", ErrNotCovered, b.last)
	case b.hasSnapshot && s.Index < b.snapshot:
		return fmt.Errorf("%w: the newest snapshot is of record %d", ErrNotCovered, b.snapshot)
	case s.Step < NoStep:
		return fmt.Errorf("it has step %d: a step is 0 or more, or NoStep", s.Step)
	case len(s.Body) > maxCommit:
		return fmt.Errorf("it has %d bytes, at most %d are allowed", len(s.Body), maxCommit)
	}
	return nil
}

// snapshots reads snapshots, and adds new ones to batches.
type snapshots struct{ db *database }

// save adds a snapshot to a batch.
func (s snapshots) save(batch *pebble.Batch, snap Snapshot) error {
	key := indexKey(tagSnapshot, snap.Index)
	return classify("save snapshot in", s.db.dir, batch.Set(key, encodeSnapshot(key, snap), nil))
}

// drop adds to a batch the deletion of all snapshots below record index before.
func (s snapshots) drop(batch *pebble.Batch, before uint64) error {
	err := batch.DeleteRange(indexKey(tagSnapshot, 0), indexKey(tagSnapshot, before), nil)
	return classify("drop snapshots in", s.db.dir, err)
}

// before returns the newest snapshot at or before record index.
func (s snapshots) before(index uint64) (snap Snapshot, ok bool, err error) {
	upper := []byte{tagSnapshot + 1}
	if index < math.MaxUint64 {
		upper = indexKey(tagSnapshot, index+1)
	}
	c := s.db.scan([]byte{tagSnapshot}, upper)
	if c.last() {
		at, _ := parseIndexKey(c.key())
		snap, err = decodeSnapshot(c.key(), c.value())
		if err != nil && c.err == nil {
			c.err = corrupt(s.db.dir, fmt.Sprintf("snapshot of record %d", at), err.Error())
		}
		snap.Body, ok = append([]byte{}, snap.Body...), true
	}
	if err := c.close(); err != nil {
		return Snapshot{}, false, err
	}
	return snap, ok, nil
}

func encodeSnapshot(key []byte, s Snapshot) []byte {
	v := binary.LittleEndian.AppendUint64(newValue(snapshotHead+len(s.Body)), uint64(s.Step))
	return seal(key, append(v, s.Body...))
}

// decodeSnapshot aliases value.
func decodeSnapshot(key, value []byte) (Snapshot, error) {
	if err := unseal(key, value, snapshotHead); err != nil {
		return Snapshot{}, err
	}
	index, ok := parseIndexKey(key)
	if !ok {
		return Snapshot{}, errShort
	}
	return Snapshot{
		Index: index,
		Step:  int64(binary.LittleEndian.Uint64(value[crcSize:])),
		Body:  value[snapshotHead:],
	}, nil
}
