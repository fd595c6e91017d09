package checkpoint

import (
	"context"
	"fmt"
)

// Compact rewrites the files so that they hold only what is still there. It takes as long as reading and writing that; commits go on meanwhile. Logs that
// are full are kept for reuse, some MiB, until the store is opened anew.
func (s *Store) Compact(ctx context.Context) error {
	if s.readOnly {
		return ErrReadOnly
	}
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	if err := s.ballast.room(); err != nil {
		return err
	}
	return fence("compact", s.dir, func() error { return s.db.Compact(ctx, []byte{tagFormat}, []byte{tagEnd}, false) })
}

// Written returns the bytes of all that was made durable since Open, as it goes to the log.
func (s *Store) Written() uint64 {
	s.commit.Lock()
	defer s.commit.Unlock()
	return s.written
}

// Room returns the bytes that the store's file system has left and has in all. What it has left counts without the reserve that the store keeps itself.
func (s *Store) Room() (free, total uint64, err error) {
	leave, err := s.enter()
	if err != nil {
		return 0, 0, err
	}
	defer leave()
	if free, total, err = s.disk.room(s.dir); err != nil {
		return 0, 0, fmt.Errorf("ask for the room left at %s: %w", s.dir, err)
	}
	return free, total, nil
}
