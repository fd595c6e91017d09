package checkpoint

import (
	"fmt"
	"hash/crc32"
)

// maxProblems bounds Report.Problems; Report.Found counts on.
const maxProblems = 100

// Report is what Verify saw.
type Report struct {
	Dir       string
	Format    uint32 // format version
	CreatedBy string // program version that made the store

	First, Last uint64 // bounds of the journal
	Records     uint64
	Snapshots   uint64
	Newest      uint64 // index of the newest snapshot
	Entries     uint64 // steps in the ledger
	Plans       uint64 // of these, how many still have their plan
	LedgerIndex uint64
	Bytes       uint64 // of all values

	Found    int      // how many problems there are
	Problems []string // the first of them, each with the place and what is wrong there
}

// OK says whether everything is as it was written.
func (r *Report) OK() bool { return r.Found == 0 }

func (r *Report) problem(where string, format string, args ...any) {
	r.Problem(where + ": " + fmt.Sprintf(format, args...))
}

// Problem adds one that somebody else found.
func (r *Report) Problem(text string) {
	if r.Found++; len(r.Problems) < maxProblems {
		r.Problems = append(r.Problems, text)
	}
}

// Verify reads everything and checks the invariants of docs/format.md. What is wrong stands in the report; the error says only that Verify could not run.
// It should have the store to itself: open it with OpenReadOnly.
func (s *Store) Verify() (Report, error) {
	leave, err := s.enter()
	if err != nil {
		return Report{}, err
	}
	defer leave()
	r := Report{Dir: s.dir}
	s.verifyFormat(&r)
	s.verifySnapshots(&r)
	s.verifyJournal(&r)
	s.verifyEntries(&r)
	s.verifyPlans(&r)
	s.verifyLedgerIndex(&r)
	s.verifyNothingElse(&r)
	return r, nil
}

// walk hands every key and value of one kind to f and reports what Pebble itself cannot read.
func (s *Store) walk(r *Report, where string, tag byte, f func(key, value []byte)) {
	c := s.scanTag(tag)
	for c.next() {
		value := c.value()
		if c.err != nil {
			break
		}
		r.Bytes += uint64(len(value))
		f(c.key(), value)
	}
	if err := c.close(); err != nil {
		r.problem(where, "%v", err)
	}
}

func (s *Store) verifyFormat(r *Report) {
	found := false
	s.walk(r, "format page", tagFormat, func(key, value []byte) {
		var err error
		if r.Format, r.CreatedBy, err = decodeFormat(key, value); err != nil {
			r.problem("format page", "%v", err)
		}
		found = true
	})
	if !found {
		r.problem("format page", "it is missing")
	}
}

func (s *Store) verifySnapshots(r *Report) {
	s.walk(r, "snapshots", tagSnapshot, func(key, value []byte) {
		snap, err := decodeSnapshot(key, value)
		if err != nil {
			r.problem(describeIndexKey("snapshot of record", key), "%v", err)
		}
		r.Newest = snap.Index
		r.Snapshots++
	})
}

func (s *Store) verifyJournal(r *Report) {
	first, last := s.Bounds()
	r.First, r.Last = first, last
	next := first
	s.walk(r, "journal", tagRecord, func(key, value []byte) {
		where := describeIndexKey("journal record", key)
		if _, err := decodeRecord(key, value); err != nil {
			r.problem(where, "%v", err)
		}
		index, _ := parseIndexKey(key)
		if index != next {
			r.problem(where, "it follows record %d", next-1)
		}
		next = index + 1
		r.Records++
	})
	if next != last+1 {
		r.problem("journal", "it ends at record %d, %d was expected", next-1, last)
	}
	s.commit.Lock()
	b := s.bounds
	s.commit.Unlock()
	if what := b.flaw(); what != "" {
		r.problem("journal", "%s", what)
	}
}

func (s *Store) verifyEntries(r *Report) {
	s.walk(r, "ledger", tagEntry, func(key, value []byte) {
		r.Entries++
		e, err := decodeEntry(key, value)
		if err != nil {
			r.problem("ledger entry "+describeStepKey(key), "%v", err)
		} else if e.Index > r.Last {
			r.problem("ledger entry "+describeStepKey(key), "sealed at record %d, but the journal ends at %d", e.Index, r.Last)
		}
	})
}

func (s *Store) verifyPlans(r *Report) {
	s.walk(r, "plans", tagPlan, func(key, value []byte) {
		r.Plans++
		where := "plan " + describeStepKey(key)
		plan, err := decodeBare(key, value)
		if err != nil {
			r.problem(where, "%v", err)
			return
		}
		k, ok := parseStepKey(key)
		if !ok {
			r.problem(where, "no such key is ever written")
			return
		}
		e, ok, err := s.entry(k)
		switch {
		case err != nil: // reported with the entry
		case !ok:
			r.problem(where, "it has no ledger entry")
		case int(e.PlanSize) != len(plan) || e.PlanCRC != crc32.Checksum(plan, castagnoli):
			r.problem(where, "it is not the plan its ledger entry was written for")
		}
	})
}

func (s *Store) verifyLedgerIndex(r *Report) {
	s.walk(r, "indexEntries", tagIndexEntry, func(key, value []byte) {
		r.LedgerIndex++
		where := "index entry " + describeStepKey(key)
		if _, err := decodeBare(key, value); err != nil {
			r.problem(where, "%v", err)
		} else if _, ok := parseStepKey(key); !ok {
			r.problem(where, "no such key is ever written")
		}
	})
}

// verifyNothingElse looks for keys that this format does not have.
func (s *Store) verifyNothingElse(r *Report) {
	for _, c := range []*cursor{s.scan(nil, []byte{tagFormat}), s.scan([]byte{tagFormat, 0}, []byte{tagRecord}), s.scan([]byte{tagEnd}, nil)} {
		for c.next() {
			r.problem("keys", "%x is no key of this store", c.key())
		}
		if err := c.close(); err != nil {
			r.problem("keys", "%v", err)
		}
	}
}

func describeIndexKey(what string, key []byte) string {
	if index, ok := parseIndexKey(key); ok {
		return fmt.Sprintf("%s %d", what, index)
	}
	return fmt.Sprintf("%s with key %x", what, key)
}
