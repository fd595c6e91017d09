package cache

import (
	"os"
	"path/filepath"
	"sync/atomic"
)

// Figures are the figures of a store. Counts are of this process, since it opened the store.
type Figures struct {
	Hits    uint64 // records that were read from an entry
	Misses  uint64 // records that were read from their shard
	Held    int64  // bytes of all files, for all processes of the host; -1: the count cannot be read
	Limit   int64  // bytes
	Filled  uint64 // entries written
	Evicted uint64 // entries removed to make room
	Damaged uint64 // entries removed because their bytes were wrong
	Waiting uint64 // shards that the filler has yet to fill, with the one that it fills
	LeftOut uint64 // shards without an entry: the limit or the disk had no room
	Failed  uint64 // shards without an entry: reading or writing failed
	Trouble string // newest failure; empty after the next written entry
}

// Figures returns the figures of now.
func (s *Store) Figures() Figures {
	f := Figures{
		Hits:    s.counts.hits.Load(),
		Misses:  s.counts.misses.Load(),
		Held:    s.room.held(),
		Limit:   s.room.limit,
		Filled:  s.filled.Load(),
		Evicted: s.room.evicted.Load(),
		Damaged: s.counts.damaged.Load(),
		LeftOut: s.counts.leftOut.Load(),
		Failed:  s.counts.failed.Load(),
	}
	if s.filler != nil {
		f.Waiting = s.filler.waiting()
	}
	if cause := s.counts.trouble.Load(); cause != nil {
		f.Trouble = *cause
	}
	return f
}

// Dir returns the directory of the store.
func (s *Store) Dir() string { return s.room.dir }

// counts are the counters of a store.
type counts struct {
	hits, misses, damaged, leftOut, failed atomic.Uint64
	trouble                                atomic.Pointer[string] // nil: none
}

// fail counts a shard that has no entry because of an error.
func (c *counts) fail(cause error) {
	c.failed.Add(1)
	c.setTrouble(cause)
}

func (c *counts) setTrouble(cause error) {
	text := cause.Error()
	c.trouble.Store(&text)
}

// tallyEvery bounds the records that a tally has not yet added.
const tallyEvery = 64

// tally counts records for one reader, so that readers rarely write the same memory.
type tally struct {
	to *atomic.Uint64
	n  uint64
}

func (t *tally) one() {
	if t.n++; t.n >= tallyEvery {
		t.flush()
	}
}

func (t *tally) flush() {
	t.to.Add(t.n)
	t.n = 0
}

// held returns the bytes of the store's files, -1 if the count cannot be read.
func (r *room) held() int64 {
	f, err := os.Open(filepath.Join(r.dir, usedName))
	if err != nil {
		return -1
	}
	defer f.Close()
	used, known := readUsed(f)
	if !known {
		return -1
	}
	return used
}
