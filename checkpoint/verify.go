package checkpoint

import (
	"fmt"
	"hash/crc32"
)

// maxProblems bounds Report.Problems. Report.Found counts all.
const maxProblems = 100

// Report is the result of Verify.
type Report struct {
	Dir       string
	Format    uint32 // format version
	CreatedBy string // program version that made the store

	First, Last uint64 // bounds of the journal
	Records     uint64
	Snapshots   uint64
	Newest      uint64 // index of the newest snapshot
	Entries     uint64 // steps in the ledger
	Plans       uint64 // plans that are still kept
	LedgerIndex uint64
	Bytes       uint64 // of all values

	Found    int      // number of problems
	Problems []string // the first 100, each with its place
}

// OK reports whether no problem was found.
func (r *Report) OK() bool { return r.Found == 0 }

func (r *Report) problem(where string, format string, args ...any) {
	r.Problem(where + ": " + fmt.Sprintf(format, args...))
}

// Problem adds a problem that the caller found.
func (r *Report) Problem(text string) {
	if r.Found++; len(r.Problems) < maxProblems {
		r.Problems = append(r.Problems, text)
	}
}

// verifier fills a report.
type verifier struct {
	db     *database
	bounds bounds
	Report
}

// verify reads every value in a database. b is the bounds of its journal.
func (db *database) verify(b bounds) Report {
	v := &verifier{db: db, bounds: b, Report: Report{Dir: db.dir}}
	v.format()
	v.snapshots()
	v.journal()
	v.entries()
	v.plans()
	v.ledgerIndex()
	v.nothingElse()
	return v.Report
}

// walk calls f with every key and value of one kind, and reports failed reads.
func (v *verifier) walk(where string, tag byte, f func(key, value []byte)) {
	c := v.db.scanTag(tag)
	for c.next() {
		value := c.value()
		if c.err != nil {
			break
		}
		v.Bytes += uint64(len(value))
		f(c.key(), value)
	}
	if err := c.close(); err != nil {
		v.problem(where, "%v", err)
	}
}

func (v *verifier) format() {
	found := false
	v.walk("format page", tagFormat, func(key, value []byte) {
		var err error
		if v.Format, v.CreatedBy, err = decodeFormat(key, value); err != nil {
			v.problem("format page", "%v", err)
		}
		found = true
	})
	if !found {
		v.problem("format page", "it is missing")
	}
}

func (v *verifier) snapshots() {
	v.walk("snapshots", tagSnapshot, func(key, value []byte) {
		snap, err := decodeSnapshot(key, value)
		if err != nil {
			v.problem(describeIndexKey("snapshot of record", key), "%v", err)
		}
		v.Newest = snap.Index
		v.Snapshots++
	})
}

func (v *verifier) journal() {
	v.First, v.Last = v.bounds.first, v.bounds.last
	next := v.First
	v.walk("journal", tagRecord, func(key, value []byte) {
		where := describeIndexKey("journal record", key)
		if _, err := decodeRecord(key, value); err != nil {
			v.problem(where, "%v", err)
		}
		index, _ := parseIndexKey(key)
		if index != next {
			v.problem(where, "it follows record %d", next-1)
		}
		next = index + 1
		v.Records++
	})
	if next != v.Last+1 {
		v.problem("journal", "it ends at record %d, %d was expected", next-1, v.Last)
	}
	if flaw := v.bounds.flaw(); flaw != "" {
		v.problem("journal", "%s", flaw)
	}
}

func (v *verifier) entries() {
	v.walk("ledger", tagEntry, func(key, value []byte) {
		v.Entries++
		e, err := decodeEntry(key, value)
		if err != nil {
			v.problem("ledger entry "+describeStepKey(key), "%v", err)
		} else if e.Index > v.Last {
			v.problem("ledger entry "+describeStepKey(key),
				"sealed at record %d, but the journal ends at %d", e.Index, v.Last)
		}
	})
}

func (v *verifier) plans() {
	v.walk("plans", tagPlan, func(key, value []byte) {
		v.Plans++
		where := "plan " + describeStepKey(key)
		plan, err := decodeBare(key, value)
		if err != nil {
			v.problem(where, "%v", err)
			return
		}
		k, ok := parseStepKey(key)
		if !ok {
			v.problem(where, "no such key is ever written")
			return
		}
		e, ok, err := ledger{v.db}.entry(k)
		switch {
		case err != nil: // reported with the entry
		case !ok:
			v.problem(where, "it has no ledger entry")
		case int(e.PlanSize) != len(plan) || e.PlanCRC != crc32.Checksum(plan, castagnoli):
			v.problem(where, "its ledger entry was written for another plan")
		}
	})
}

func (v *verifier) ledgerIndex() {
	v.walk("indexEntries", tagIndexEntry, func(key, value []byte) {
		v.LedgerIndex++
		where := "index entry " + describeStepKey(key)
		if _, err := decodeBare(key, value); err != nil {
			v.problem(where, "%v", err)
		} else if _, ok := parseStepKey(key); !ok {
			v.problem(where, "no such key is ever written")
		}
	})
}

// nothingElse looks for keys that this format does not have.
func (v *verifier) nothingElse() {
	for _, c := range []*cursor{
		v.db.scan(nil, []byte{tagFormat}),
		v.db.scan([]byte{tagFormat, 0}, []byte{tagRecord}),
		v.db.scan([]byte{tagEnd}, nil),
	} {
		for c.next() {
			v.problem("keys", "%x is no key of this store", c.key())
		}
		if err := c.close(); err != nil {
			v.problem("keys", "%v", err)
		}
	}
}
