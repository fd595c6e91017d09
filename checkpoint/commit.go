package checkpoint

import "fmt"

// Commit is what becomes durable together or not at all.
type Commit struct {
	Records []Record // appended to the journal in this order; their Index is ignored
	Plans   []Plan   // sealed steps for the ledger
	// LedgerIndex are kept for ever; one that is there already is written over.
	LedgerIndex []IndexEntry
}

// Append makes records durable, in one atomic batch and with one fsync, and returns the index of the last. Bodies are not kept.
func (s *Store) Append(records ...Record) (last uint64, err error) {
	return s.Commit(Commit{Records: records})
}

// Commit makes c durable, in one atomic batch and with one fsync, and returns the index of the journal's last record. Bodies are not kept; all together they
// have at most 256 MiB. On error nothing of c was written: ErrConflict for a step that is sealed otherwise already, ErrDiskFull when there is no room.
func (s *Store) Commit(c Commit) (last uint64, err error) {
	if err := c.validate(); err != nil {
		return 0, fmt.Errorf("commit to journal: %w", err)
	}
	leave, err := s.enterWrite()
	if err != nil {
		return 0, err
	}
	defer leave()
	if len(c.Records) == 0 && len(c.Plans) == 0 && len(c.LedgerIndex) == 0 {
		return s.bounds.last, nil
	}
	if err := s.ballast.room(); err != nil {
		return 0, err
	}
	last = s.bounds.last + uint64(len(c.Records))
	batch := s.db.NewBatchWithSize(c.size())
	for i, r := range c.Records {
		key := indexKey(tagRecord, s.bounds.last+1+uint64(i))
		if err := batch.Set(key, encodeRecord(key, r), nil); err != nil {
			return 0, classify("commit to journal in", s.dir, err)
		}
	}
	if err := s.sealPlans(batch, last, c.Plans); err != nil {
		_ = batch.Close() // nothing of it was applied; the refusal is what counts
		return 0, err
	}
	for _, p := range c.LedgerIndex {
		key := stepKey(tagIndexEntry, p.Key)
		if err := batch.Set(key, encodeBare(key, p.Body), nil); err != nil {
			return 0, classify("commit to journal in", s.dir, err)
		}
	}
	s.fail.Hit("checkpoint/commit/before")
	if err := s.apply("commit to journal in", batch); err != nil {
		return 0, err
	}
	s.fail.Hit("checkpoint/commit/after")
	s.bounds.last = last
	s.witness(last)
	s.fail.Hit("checkpoint/witness/after")
	return last, nil
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

// size is about what the batch takes.
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
