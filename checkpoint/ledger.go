package checkpoint

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// Plan is a sealed step on its way into the ledger.
type Plan struct {
	Key    StepKey
	Body   []byte // the plan, kept until DropPlans
	Digest []byte // kept for ever: at most MaxDigest bytes
}

// Entry is the part of a sealed step that the ledger keeps for ever.
type Entry struct {
	Key      StepKey
	Index    uint64 // of the last journal record in the commit that sealed the step
	PlanSize uint32 // bytes
	PlanCRC  uint32 // CRC32C of the plan's bytes; a plan that is dropped and replayed must have the same one
	Digest   []byte
}

func (p Plan) validate() error {
	if err := p.Key.validate(); err != nil {
		return fmt.Errorf("seal step %s: %w", p.Key, err)
	}
	if len(p.Digest) > MaxDigest {
		return fmt.Errorf("seal step %s: digest has %d bytes, at most %d are allowed", p.Key, len(p.Digest), MaxDigest)
	}
	return nil
}

// entry returns the entry of p.
func (p Plan) entry(index uint64) Entry {
	return Entry{
		Key:      p.Key,
		Index:    index,
		PlanSize: uint32(len(p.Body)),
		PlanCRC:  crc32.Checksum(p.Body, castagnoli),
		Digest:   p.Digest,
	}
}

// sameContent reports whether two entries belong to the same plan. An entry is written once, but a step may be sealed
// again with the same content.
func (e Entry) sameContent(o Entry) bool {
	return e.PlanSize == o.PlanSize && e.PlanCRC == o.PlanCRC && bytes.Equal(e.Digest, o.Digest)
}

// IndexEntry is a value that a writer keeps beside the ledger for later searches. Index entries are few and kept for
// ever. The key's step need not be sealed.
type IndexEntry struct {
	Key  StepKey
	Body []byte
}

// ledger reads the entries and plans of steps, and adds new ones to batches.
type ledger struct{ db *database }

// seal adds plans and their entries to a batch whose last record has the given index.
func (l ledger) seal(batch *pebble.Batch, index uint64, plans []Plan) error {
	for _, p := range plans {
		e := p.entry(index)
		old, sealed, err := l.entry(p.Key)
		if err != nil {
			return err
		}
		if sealed && !old.sameContent(e) {
			return fmt.Errorf("seal step %s in %s: %w: "+
				"record %d sealed %d bytes with digest %x, the new plan has %d bytes with digest %x",
				p.Key, l.db.dir, ErrConflict, old.Index, old.PlanSize, old.Digest, e.PlanSize, e.Digest)
		}
		if !sealed {
			key := stepKey(tagEntry, p.Key)
			if err := batch.Set(key, encodeEntry(key, e), nil); err != nil {
				return classify("seal step in", l.db.dir, err)
			}
		}
		key := stepKey(tagPlan, p.Key)
		if err := batch.Set(key, encodeBare(key, p.Body), nil); err != nil {
			return classify("seal step in", l.db.dir, err)
		}
	}
	return nil
}

// index adds index entries to a batch.
func (l ledger) index(batch *pebble.Batch, entries []IndexEntry) error {
	for _, e := range entries {
		key := stepKey(tagIndexEntry, e.Key)
		if err := batch.Set(key, encodeBare(key, e.Body), nil); err != nil {
			return classify("commit to journal in", l.db.dir, err)
		}
	}
	return nil
}

func (l ledger) entry(k StepKey) (Entry, bool, error) {
	key := stepKey(tagEntry, k)
	value, err := l.db.get(key)
	if err != nil || value == nil {
		return Entry{}, false, err
	}
	e, err := decodeEntry(key, value)
	if err != nil {
		return Entry{}, false, corrupt(l.db.dir, "ledger entry "+k.String(), err.Error())
	}
	return e, true, nil
}

func (l ledger) entryBefore(k StepKey) (e Entry, ok bool, err error) {
	err = l.before(tagEntry, StepKey{Stream: k.Stream}, k, func(key, value []byte) (err error) {
		e, err = decodeEntry(key, value)
		ok = err == nil
		return err
	})
	return e, ok, err
}

func (l ledger) indexEntryBefore(k StepKey) (e IndexEntry, ok bool, err error) {
	err = l.before(tagIndexEntry, StepKey{Stream: k.Stream, Attempt: k.Attempt}, k, func(key, value []byte) error {
		body, err := decodeBare(key, value)
		if err != nil {
			return err
		}
		if e.Key, ok = parseStepKey(key); !ok {
			return errShort
		}
		e.Body = append([]byte{}, body...) // it outlives the cursor
		return nil
	})
	return e, ok, err
}

// indexEntries calls f with every index entry in [from, to).
func (l ledger) indexEntries(from, to StepKey, f func(IndexEntry) error) error {
	c := l.db.scan(stepKey(tagIndexEntry, from), stepKey(tagIndexEntry, to))
	for c.next() {
		k, ok := parseStepKey(c.key())
		body, err := decodeBare(c.key(), c.value())
		if err == nil && !ok {
			err = errShort
		}
		if err != nil {
			if c.err == nil {
				c.err = corrupt(l.db.dir, "index entry "+describeStepKey(c.key()), err.Error())
			}
			break
		}
		if err := f(IndexEntry{Key: k, Body: slices.Clone(body)}); err != nil {
			_ = c.close() // the error of f counts
			return err
		}
	}
	return c.close()
}

// before calls f with the last key of one kind in [from, to], if there is one.
func (l ledger) before(tag byte, from, to StepKey, f func(key, value []byte) error) error {
	c := l.db.scan(stepKey(tag, from), append(stepKey(tag, to), 0))
	if c.last() {
		if value := c.value(); c.err == nil {
			if err := f(c.key(), value); err != nil {
				c.err = corrupt(l.db.dir, "step "+describeStepKey(c.key()), err.Error())
			}
		}
	}
	return c.close()
}

// plan returns a copy of a step's plan.
func (l ledger) plan(k StepKey) ([]byte, bool, error) {
	key := stepKey(tagPlan, k)
	value, err := l.db.get(key)
	if err != nil || value == nil {
		return nil, false, err
	}
	plan, err := decodeBare(key, value)
	if err != nil {
		return nil, false, corrupt(l.db.dir, "plan "+k.String(), err.Error())
	}
	return plan, true, nil
}

// entries calls f with every entry in [from, to). A zero from begins at the first key, a zero to ends after the last.
func (l ledger) entries(from, to StepKey, f func(Entry) error) error {
	lower, upper := []byte{tagEntry}, []byte{tagEntry + 1}
	if from != (StepKey{}) {
		lower = stepKey(tagEntry, from)
	}
	if to != (StepKey{}) {
		upper = stepKey(tagEntry, to)
	}
	if bytes.Compare(lower, upper) >= 0 {
		return nil
	}
	c := l.db.scan(lower, upper)
	for c.next() {
		e, err := decodeEntry(c.key(), c.value())
		if err != nil {
			if c.err == nil {
				c.err = corrupt(l.db.dir, "ledger entry "+describeStepKey(c.key()), err.Error())
			}
			break
		}
		if err := f(e); err != nil {
			_ = c.close() // the error of f counts
			return err
		}
	}
	return c.close()
}

// dropPlans adds to a batch the deletion of the plans of a stream's steps below before, in every attempt.
func (l ledger) dropPlans(batch *pebble.Batch, stream string, before uint64) error {
	for attempt := uint32(0); ; attempt++ {
		next, ok, err := l.nextPlan(StepKey{Stream: stream, Attempt: attempt})
		if err != nil || !ok {
			return err
		}
		attempt = next.Attempt
		lower, upper := StepKey{stream, attempt, 0}, StepKey{stream, attempt, before}
		if next.Step < before {
			if err := batch.DeleteRange(stepKey(tagPlan, lower), stepKey(tagPlan, upper), nil); err != nil {
				return classify("drop plans in", l.db.dir, err)
			}
		}
		if attempt == math.MaxUint32 {
			return nil
		}
	}
}

// nextPlan finds the first plan of a stream at or after a key.
func (l ledger) nextPlan(from StepKey) (k StepKey, ok bool, err error) {
	upper := append(append([]byte{tagPlan}, from.Stream...), 1) // one past the terminator
	c := l.db.scan(stepKey(tagPlan, from), upper)
	if c.next() {
		if k, ok = parseStepKey(c.key()); !ok {
			c.err = corrupt(l.db.dir, "a key", fmt.Sprintf("%x is no key of this store", c.key()))
		}
	}
	return k, ok, c.close()
}

func encodeEntry(key []byte, e Entry) []byte {
	v := binary.LittleEndian.AppendUint64(newValue(entryHead+len(e.Digest)), e.Index)
	v = binary.LittleEndian.AppendUint32(v, e.PlanSize)
	v = binary.LittleEndian.AppendUint32(v, e.PlanCRC)
	return seal(key, append(v, e.Digest...))
}

// decodeEntry copies the digest, because an Entry outlives the cursor.
func decodeEntry(key, value []byte) (Entry, error) {
	if err := unseal(key, value, entryHead); err != nil {
		return Entry{}, err
	}
	k, ok := parseStepKey(key)
	if !ok {
		return Entry{}, errShort
	}
	return Entry{
		Key:      k,
		Index:    binary.LittleEndian.Uint64(value[crcSize:]),
		PlanSize: binary.LittleEndian.Uint32(value[crcSize+8:]),
		PlanCRC:  binary.LittleEndian.Uint32(value[crcSize+12:]),
		Digest:   append([]byte(nil), value[entryHead:]...),
	}, nil
}
