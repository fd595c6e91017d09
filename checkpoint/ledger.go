package checkpoint

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/cockroachdb/pebble/v2"
)

// Plan is a sealed step on its way into the ledger.
type Plan struct {
	Key    StepKey
	Body   []byte // the plan, kept until DropPlans
	Digest []byte // what is kept for ever: at most MaxDigest bytes
}

// Entry is what the ledger knows of a step for ever.
type Entry struct {
	Key      StepKey
	Index    uint64 // of the last journal record in the commit that sealed the step
	PlanSize uint32 // bytes
	PlanCRC  uint32 // CRC32C of the plan's bytes: a plan that was dropped and derived again must agree
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

// entry is what the ledger will say of p.
func (p Plan) entry(index uint64) Entry {
	return Entry{Key: p.Key, Index: index, PlanSize: uint32(len(p.Body)), PlanCRC: crc32.Checksum(p.Body, castagnoli), Digest: p.Digest}
}

// sameContent: an entry is written once, but a step derived again may be sealed again.
func (e Entry) sameContent(o Entry) bool {
	return e.PlanSize == o.PlanSize && e.PlanCRC == o.PlanCRC && bytes.Equal(e.Digest, o.Digest)
}

// sealPlans adds plans and their entries to a batch whose last record has the given index.
func (s *Store) sealPlans(batch *pebble.Batch, index uint64, plans []Plan) error {
	for _, p := range plans {
		e := p.entry(index)
		old, sealed, err := s.entry(p.Key)
		if err != nil {
			return err
		}
		if sealed && !old.sameContent(e) {
			return fmt.Errorf("seal step %s in %s: %w: %d bytes with digest %x were sealed at record %d, now come %d bytes with digest %x",
				p.Key, s.dir, ErrConflict, old.PlanSize, old.Digest, old.Index, e.PlanSize, e.Digest)
		}
		if !sealed {
			key := stepKey(tagEntry, p.Key)
			if err := batch.Set(key, encodeEntry(key, e), nil); err != nil {
				return classify("seal step in", s.dir, err)
			}
		}
		key := stepKey(tagPlan, p.Key)
		if err := batch.Set(key, encodeBare(key, p.Body), nil); err != nil {
			return classify("seal step in", s.dir, err)
		}
	}
	return nil
}

// Entry returns what the ledger knows of a step, and whether it was ever sealed.
func (s *Store) Entry(k StepKey) (Entry, bool, error) {
	leave, err := s.enter()
	if err != nil {
		return Entry{}, false, err
	}
	defer leave()
	return s.entry(k)
}

// EntryBefore returns the newest entry of a stream at or before a key, in the order of the keys, and whether there is one.
func (s *Store) EntryBefore(k StepKey) (e Entry, ok bool, err error) {
	err = s.before(tagEntry, StepKey{Stream: k.Stream}, k, func(key, value []byte) (err error) {
		e, err = decodeEntry(key, value)
		ok = err == nil
		return err
	})
	return e, ok, err
}

// before hands f the last key of one kind from key from on up to and including key to.
func (s *Store) before(tag byte, from, to StepKey, f func(key, value []byte) error) error {
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	c := s.scan(stepKey(tag, from), append(stepKey(tag, to), 0))
	if c.last() {
		if value := c.value(); c.err == nil {
			if err := f(c.key(), value); err != nil {
				c.err = corrupt(s.dir, "step "+describeStepKey(c.key()), err.Error())
			}
		}
	}
	return c.close()
}

func (s *Store) entry(k StepKey) (Entry, bool, error) {
	key := stepKey(tagEntry, k)
	value, err := s.get(key)
	if err != nil || value == nil {
		return Entry{}, false, err
	}
	e, err := decodeEntry(key, value)
	if err != nil {
		return Entry{}, false, corrupt(s.dir, "ledger entry "+k.String(), err.Error())
	}
	return e, true, nil
}

// Plan returns a step's plan, and whether it is still kept. The bytes are the caller's.
func (s *Store) Plan(k StepKey) ([]byte, bool, error) {
	leave, err := s.enter()
	if err != nil {
		return nil, false, err
	}
	defer leave()
	key := stepKey(tagPlan, k)
	value, err := s.get(key)
	if err != nil || value == nil {
		return nil, false, err
	}
	plan, err := decodeBare(key, value)
	if err != nil {
		return nil, false, corrupt(s.dir, "plan "+k.String(), err.Error())
	}
	return plan, true, nil
}

// Ledger calls f with every entry from key from on and before key to, in the order of the keys, as of now. The zero from is the first, the zero to is
// past the last. The first error of f ends it and is returned as it is.
func (s *Store) Ledger(from, to StepKey, f func(Entry) error) error {
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
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
	c := s.scan(lower, upper)
	for c.next() {
		e, err := decodeEntry(c.key(), c.value())
		if err != nil {
			if c.err == nil {
				c.err = corrupt(s.dir, "ledger entry "+describeStepKey(c.key()), err.Error())
			}
			break
		}
		if err := f(e); err != nil {
			_ = c.close() // f's refusal is what counts
			return err
		}
	}
	return c.close()
}

// DropPlans deletes the plans of all steps below before, in every attempt of a stream. Their entries stay.
func (s *Store) DropPlans(stream string, before uint64) error {
	if err := validateStream(stream); err != nil {
		return fmt.Errorf("drop plans: %w", err)
	}
	leave, err := s.enterWrite()
	if err != nil {
		return err
	}
	defer leave()
	s.fail.Hit("checkpoint/dropplans/before")
	batch := s.db.NewBatch()
	for attempt := uint32(0); ; attempt++ {
		next, ok, err := s.nextPlan(StepKey{Stream: stream, Attempt: attempt})
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		attempt = next.Attempt
		lower, upper := StepKey{stream, attempt, 0}, StepKey{stream, attempt, before}
		if next.Step < before {
			if err := batch.DeleteRange(stepKey(tagPlan, lower), stepKey(tagPlan, upper), nil); err != nil {
				return classify("drop plans in", s.dir, err)
			}
		}
		if attempt == math.MaxUint32 {
			break
		}
	}
	if batch.Empty() {
		return batch.Close()
	}
	return s.apply("drop plans in", batch)
}

// nextPlan finds the first plan of a stream at or after a key.
func (s *Store) nextPlan(from StepKey) (k StepKey, ok bool, err error) {
	upper := append(append([]byte{tagPlan}, from.Stream...), 1) // one past the terminator
	c := s.scan(stepKey(tagPlan, from), upper)
	if c.next() {
		if k, ok = parseStepKey(c.key()); !ok {
			c.err = corrupt(s.dir, "a key", fmt.Sprintf("%x is no key of this store", c.key()))
		}
	}
	return k, ok, c.close()
}

// describeStepKey names a ledger key in an error, whatever is wrong with it.
func describeStepKey(key []byte) string {
	if k, ok := parseStepKey(key); ok {
		return k.String()
	}
	return fmt.Sprintf("with key %x", key)
}
