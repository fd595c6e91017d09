package checkpoint

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// Commit is a set of facts that become durable together or not at all.
type Commit struct {
	Records []Record // appended to the journal in this order; their Index is ignored
	Plans   []Plan   // sealed steps for the ledger
	// LedgerIndex holds index entries, which the store keeps for ever. An entry replaces an earlier one with the same
	// key.
	LedgerIndex []IndexEntry
}

// isEmpty reports whether the commit changes nothing.
func (c Commit) isEmpty() bool {
	return len(c.Records) == 0 && len(c.Plans) == 0 && len(c.LedgerIndex) == 0
}

// gather adds the commit to a batch that continues a journal. It returns the journal's last index after the commit.
func (c Commit) gather(batch *pebble.Batch, j *journal, l ledger) (last uint64, err error) {
	last, err = j.append(batch, c.Records)
	if err == nil {
		err = l.seal(batch, last, c.Plans)
	}
	if err == nil {
		err = l.index(batch, c.LedgerIndex)
	}
	return last, err
}

func (c Commit) validate() error {
	total := 0
	for _, r := range c.Records {
		if r.Step < NoStep {
			return fmt.Errorf("record has step %d: a step is 0 or more, or NoStep", r.Step)
		}
		total += len(r.Body)
	}
	seen := make(map[StepKey]bool, len(c.Plans))
	for _, p := range c.Plans {
		if err := p.validate(); err != nil {
			return err
		}
		if seen[p.Key] {
			return fmt.Errorf("step %s is sealed twice in one commit", p.Key)
		}
		seen[p.Key] = true
		total += len(p.Body)
	}
	for _, p := range c.LedgerIndex {
		if err := p.Key.validate(); err != nil {
			return fmt.Errorf("index entry %s: %w", p.Key, err)
		}
		total += len(p.Body)
	}
	if total > maxCommit {
		return fmt.Errorf("%d bytes in one commit, at most %d are allowed", total, maxCommit)
	}
	return nil
}

// size estimates the bytes of the commit's batch.
func (c Commit) size() int {
	const around = 64 // key, header, batch framing
	n := around
	for _, r := range c.Records {
		n += around + len(r.Body)
	}
	for _, p := range c.Plans {
		n += 2*(around+len(p.Key.Stream)) + len(p.Body) + len(p.Digest)
	}
	for _, p := range c.LedgerIndex {
		n += around + len(p.Key.Stream) + len(p.Body)
	}
	return n
}
