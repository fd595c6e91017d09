package index

import (
	"errors"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// leastDead is the number of unused bytes below which a log is left as it is.
const leastDead = 64 << 20

// compact replaces a log of which more than half is unused by its newest records. Other processes keep using the old
// file until they write. Errors leave the old file.
func (s *Store) compact() {
	if l := s.log; l.dead < leastDead || l.dead < l.size/2 {
		return
	}
	s.appending.Lock()
	defer s.appending.Unlock()
	if err := s.rewrite(); err != nil {
		s.note.Warn("the index directory is not compacted", "dir", s.dir, "err", err)
	}
}

// rewrite moves the newest records to a new log and opens it; appending is held.
func (s *Store) rewrite() (err error) {
	unlock, err := s.lockLog()
	if err != nil {
		return err
	}
	defer unlock()
	temp := filepath.Join(s.dir, compactName)
	if err := s.fs.Remove(temp); err != nil && !isMissing(err) {
		return err
	}
	f, err := s.fs.Open(temp, true)
	if err != nil {
		return err
	}
	if err := errors.Join(s.writeNewest(f), f.Close()); err != nil {
		return errors.Join(err, s.fs.Remove(temp))
	}
	if err := s.fs.Rename(temp, filepath.Join(s.dir, logName)); err != nil {
		return errors.Join(err, s.fs.Remove(temp))
	}
	if err := s.fs.SyncDir(s.dir); err != nil {
		s.note.Warn("index directory was not synced", "dir", s.dir, "err", err)
	}
	s.mu.Lock()
	s.retired, s.log = append(s.retired, s.log), nil
	s.mu.Unlock()
	return s.reopen(false)
}

// writeNewest writes a log with the newest records alone, in the order of the old log, and syncs it.
func (s *Store) writeNewest(f File) error {
	if err := lock(f, unix.LOCK_EX); err != nil {
		return err
	}
	l := s.log
	var newest []int64
	for _, slot := range l.table.slots {
		if slot != 0 {
			newest = append(newest, offsetOf(slot))
		}
	}
	slices.Sort(newest)
	out, to := newLogHead(l.flags), int64(0)
	flush := func() error {
		n, err := f.WriteAt(out, to)
		to, out = to+int64(n), out[:0]
		return err
	}
	for _, at := range newest {
		r, ok := readRecord(l.view[at:l.size])
		if !ok {
			continue
		}
		if out = append(out, l.view[at:at+r.span()]...); len(out) >= batchBytes {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return errors.Join(flush(), f.Sync())
}
