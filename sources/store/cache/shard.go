package cache

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"millrace"
	"millrace/sources"
	"millrace/sources/store/remedy"
)

// lookEvery is the time between two looks for an entry that another process may have written.
const lookEvery = 2 * time.Second

// shard serves the records of a shard from its entry, or from the shard itself. Its methods may be called concurrently.
type shard struct {
	sources.Shard
	store *Store
	at    sources.Cached

	cursors sync.Pool // of *cursor of the open entry

	mu     sync.Mutex
	looked time.Time
	filled uint64 // store.filled at that time
	open   atomic.Pointer[entry]
	past   []*entry // dropped, closed with the shard, because readers may be using them
}

// Wrap implements sources.Cache.
func (s *Store) Wrap(at sources.Cached, inner sources.Shard) sources.Shard {
	return &shard{Shard: inner, store: s, at: at}
}

// entry returns the shard's entry, nil if there is none.
func (s *shard) entry() *entry {
	if e := s.open.Load(); e != nil {
		return e
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	filled := s.store.filled.Load()
	if e := s.open.Load(); e != nil || filled == s.filled && time.Since(s.looked) < lookEvery {
		return e
	}
	s.looked, s.filled = time.Now(), filled
	e := s.store.open(s.at.Key, s.at.Name())
	s.open.Store(e)
	return e
}

// drop takes an entry out of use that cannot be read. A damaged one is removed. One that the host fails to read stays
// for later: its descriptor may be dead, and the next look opens it anew.
func (s *shard) drop(e *entry, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.open.CompareAndSwap(e, nil) {
		return
	}
	s.past = append(s.past, e)
	if r, known := remedy.Of(cause); known && r != remedy.Final {
		s.looked = time.Now()
		s.store.counts.setTrouble(cause)
		return
	}
	s.store.drop(s.at.Key, e.file, s.at.Name(), cause)
}

// Close implements io.Closer.
func (s *shard) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.Shard.Close()
	for _, e := range append(s.past, s.open.Swap(nil)) {
		if e != nil {
			err = errors.Join(err, e.file.Close())
		}
	}
	s.past = nil
	return err
}

// Count implements sources.Shard.
func (s *shard) Count() (uint64, bool) {
	if n, ok := s.Shard.Count(); ok {
		return n, true
	}
	if e := s.entry(); e != nil {
		return e.count, true
	}
	return 0, false
}

// Seekable implements sources.Shard: an entry can be read at random, even if the file cannot.
func (s *shard) Seekable() bool { return s.Shard.Seekable() || s.entry() != nil }

// Scan implements sources.Shard.
func (s *shard) Scan(ctx context.Context, from uint64, fn func(sources.Record) error) error {
	e := s.entry()
	if e == nil {
		s.store.miss(s.at)
		return s.scanShard(ctx, from, fn)
	}
	c := s.cursor(e)
	hits := tally{to: &s.store.counts.hits}
	defer hits.flush()
	for ; from < e.count; from++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		r, err := c.record(from, e.count-from)
		if err != nil {
			s.drop(e, err)
			return s.scanShard(ctx, from, fn)
		}
		hits.one()
		if err := fn(r); err != nil {
			return err
		}
	}
	s.cursors.Put(c)
	return ctx.Err()
}

// Read implements sources.Shard.
func (s *shard) Read(ctx context.Context, numbers []uint64, fn func(sources.Record) error) error {
	e := s.entry()
	if e == nil {
		s.store.miss(s.at)
		return s.readShard(ctx, numbers, fn)
	}
	c := s.cursor(e)
	hits := tally{to: &s.store.counts.hits}
	defer hits.flush()
	for i, n := range numbers {
		if err := ctx.Err(); err != nil {
			return err
		}
		if n >= e.count {
			return millrace.Errorf(millrace.ErrInvalid, "read record %d of %s: it has %d", n, s.at.Name(), e.count)
		}
		run := 1
		for i+run < len(numbers) && numbers[i+run] == n+uint64(run) {
			run++
		}
		r, err := c.record(n, uint64(run))
		if err != nil {
			s.drop(e, err)
			return s.readShard(ctx, numbers[i:], fn)
		}
		hits.one()
		if err := fn(r); err != nil {
			return err
		}
	}
	s.cursors.Put(c)
	return ctx.Err()
}

// cursor returns a cursor of an entry.
func (s *shard) cursor(e *entry) *cursor {
	if c, ok := s.cursors.Get().(*cursor); ok && c.entry == e {
		return c
	}
	return newCursor(e)
}

// scanShard scans the shard itself.
func (s *shard) scanShard(ctx context.Context, from uint64, fn func(sources.Record) error) error {
	misses := tally{to: &s.store.counts.misses}
	defer misses.flush()
	return s.Shard.Scan(ctx, from, func(r sources.Record) error {
		misses.one()
		return fn(r)
	})
}

// readShard reads records of the shard itself. If it can only be streamed, it reads up to the last of them.
func (s *shard) readShard(ctx context.Context, numbers []uint64, fn func(sources.Record) error) error {
	misses := tally{to: &s.store.counts.misses}
	defer misses.flush()
	if _, counted := s.Shard.Count(); counted && s.Shard.Seekable() || len(numbers) == 0 {
		return s.Shard.Read(ctx, numbers, func(r sources.Record) error {
			misses.one()
			return fn(r)
		})
	}
	done := errors.New("all are read")
	err := s.Shard.Scan(ctx, numbers[0], func(r sources.Record) error {
		if r.Number != numbers[0] {
			return nil
		}
		misses.one()
		if err := fn(r); err != nil {
			return err
		}
		if numbers = numbers[1:]; len(numbers) == 0 {
			return done
		}
		return nil
	})
	if errors.Is(err, done) {
		return nil
	}
	return err
}
