package cache

import (
	"context"
	"errors"
	"sync"
	"time"

	"millrace"
	"millrace/sources"
	"millrace/sources/facts/kept"
)

// Filled is the result of filling one entry.
type Filled uint8

// The results of Fill.
const (
	Wrote   Filled = iota // the entry was written
	Present               // it was there before, or another process writes it
	Left                  // there is no room for it, or the shard holds tokens
)

// rememberEach is the number of documents after which their lengths are kept.
const rememberEach = 4 << 10

// Fill writes the entry of one shard: it reads and tokenises the shard's records in order, and keeps their lengths. It
// calls tell for each record. The error of a shard is returned; a full disk is not an error.
func (s *Store) Fill(ctx context.Context, src *sources.Source, number uint32, tell func()) (Filled, error) {
	o, err := src.Acquire(ctx, number)
	if err != nil {
		return Left, err
	}
	defer src.Release(o)
	sh, ok := o.Shard.(*shard)
	switch {
	case !ok:
		return Left, nil
	case sh.entry() != nil:
		return Present, nil
	case s.isFull():
		s.counts.leftOut.Add(1)
		return Left, nil
	}
	w, err := s.create(sh.at.Key, src.Manifest().Shards[number].Size)
	if err == nil {
		f := &filling{src: src, shard: number, open: o, writer: w, tell: tell, check: src.DocumentCheck()}
		what := func() string { return sh.at.Name() }
		err = sources.Fence(millrace.ErrDamaged, what, func() error { return sh.Shard.Scan(ctx, 0, f.add) })
		if err == nil {
			f.remember()
			err = w.finish()
		} else {
			err = errors.Join(err, w.abort())
		}
	}
	switch {
	case err == nil:
		s.filled.Add(1)
		s.counts.trouble.Store(nil)
		return Wrote, nil
	case errors.Is(err, errBusy):
		return Present, nil
	case errors.Is(err, errNoRoom):
		s.counts.leftOut.Add(1)
		return Left, nil
	case isFull(err):
		s.setFull(err)
		s.counts.leftOut.Add(1)
		return Left, nil
	}
	return Left, o.Explain(err)
}

// filling tokenises the records of one shard.
type filling struct {
	src     *sources.Source
	shard   uint32
	open    *sources.OpenShard
	writer  *writer
	tell    func()
	check   sources.DocumentCheck
	judge   *sources.Judge
	tokens  []uint32
	others  []any
	lengths []kept.Length
}

// add tokenises and writes one record.
func (f *filling) add(r sources.Record) error {
	if err := f.open.HostFailure(&r); err != nil {
		return err
	}
	if f.judge == nil {
		f.judge = f.src.Judge()
	}
	f.tokens = f.tokens[:0]
	if r.Err == nil {
		if f.tokens, r.Err = f.src.Document(f.tokens, &r, nil); r.Err != nil {
			f.tokens = f.tokens[:0]
		}
		if r.Err != nil && !errors.Is(r.Err, millrace.ErrBadSample) {
			return r.Err
		}
	}
	found := kept.Length{Record: r.Number, Tokens: uint32(len(f.tokens))}
	bits, left := f.judge.LeavesOut(&r, r.Err)
	if r.Err == nil || left {
		if err := f.check.Compare(f.shard, &found, f.tokens); err != nil {
			return err
		}
	}
	switch {
	case left:
		found.Refused = bits
	case r.Err != nil:
		found.Bad = true
	default:
		bits, err := f.judge.Refused(&r, len(f.tokens))
		found.Refused, found.Bad = bits, err != nil
	}
	f.lengths = append(f.lengths, found)
	if len(f.lengths) >= rememberEach {
		f.remember()
	}
	f.tell()
	if len(r.Others) > 0 {
		f.others = append(f.others[:0], r.Others...)
		f.judge.Forget(f.others)
		r.Others = f.others
	}
	return f.writer.add(&r, f.tokens)
}

// remember keeps the lengths found so far.
func (f *filling) remember() {
	f.src.Remember(f.shard, f.lengths)
	f.lengths = f.lengths[:0]
}

// wanted is a shard without an entry.
type wanted struct {
	src   *sources.Source
	shard uint32
}

// Filler fills the entries that the shards of a process lack, one after the other, in the order in which shards were
// first read. Each shard is tried once.
type Filler struct {
	store *Store
	more  chan struct{} // has an element if queue has

	mu      sync.Mutex
	queue   []wanted
	filling bool // the last shard taken from the queue may be unfinished
	seen    map[millrace.Digest]bool
}

// Filler returns the filler of the store. It is called once, before shards are wrapped.
func (s *Store) Filler() *Filler {
	s.filler = &Filler{store: s, more: make(chan struct{}, 1), seen: map[millrace.Digest]bool{}}
	return s.filler
}

// miss notes that a shard was read without an entry.
func (s *Store) miss(at sources.Cached) {
	if f := s.filler; f != nil {
		f.want(at)
	}
}

func (f *Filler) want(at sources.Cached) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.seen[at.Key] {
		return
	}
	f.seen[at.Key] = true
	f.queue = append(f.queue, wanted{at.Source, at.Shard})
	select {
	case f.more <- struct{}{}:
	default:
	}
}

// again lets a shard be tried once more.
func (f *Filler) again(key millrace.Digest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.seen, key)
}

func (f *Filler) next() (w wanted, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.filling = len(f.queue) > 0; !f.filling {
		return w, false
	}
	w = f.queue[0]
	f.queue = f.queue[1:]
	return w, true
}

// waiting counts the shards that are not filled yet.
func (f *Filler) waiting() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := uint64(len(f.queue))
	if f.filling {
		n++
	}
	return n
}

// A filler works in turns. While the process has other work, it rests restTimes as long as it worked.
const (
	turn      = 5 * time.Millisecond
	restTimes = 3
)

// Run fills entries until ctx ends. The sources stay open until it returns. isBusy reports whether the process has
// other work waiting: filling then takes at most a quarter of one core.
func (f *Filler) Run(ctx context.Context, isBusy func() bool) error {
	for {
		for w, ok := f.next(); ok && ctx.Err() == nil; w, ok = f.next() {
			began := time.Now()
			pace := func() {
				worked := time.Since(began)
				if worked < turn {
					return
				}
				if isBusy() {
					rest(ctx, restTimes*worked)
				}
				began = time.Now()
			}
			if _, err := f.store.Fill(ctx, w.src, w.shard, pace); err != nil && ctx.Err() == nil {
				f.store.counts.fail(err)
				f.store.log.Warn("a shard is not kept in the token cache", "source", w.src.Name(),
					"shard", w.src.Manifest().Shards[w.shard].Path, "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-f.more:
		}
	}
}

// rest waits for a time or for the end of ctx.
func rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
