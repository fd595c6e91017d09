package remote

import (
	"context"
	"sync"
)

// Sizes of read-ahead.
const (
	pageBytes   = 1 << 20
	mostStreams = 8        // reads in order of one file that are followed at the same time
	mostFlying  = 16       // pages of one stream in flight
	mostAhead   = 32       // pages of one stream in flight or not read yet
	jump        = 64 << 10 // bytes; a read that begins at most this far behind the last one follows it
)

// stream is a run of reads in order.
type stream struct {
	next   int64 // the byte behind the newest read
	hits   int   // reads that followed
	turn   uint64
	until  int64 // the first page that was not asked for
	flying int   // pages in flight
}

// page is a part of a file that is read ahead of need.
type page struct {
	data   []byte
	ready  chan struct{}
	err    error
	cancel context.CancelFunc
}

// copy waits for the page.
func (g *page) copy(ctx context.Context, p []byte, at int64) error {
	select {
	case <-g.ready:
	case <-ctx.Done():
		return ctx.Err()
	}
	if g.err == nil {
		copy(p, g.data[at:])
	}
	return g.err
}

// room is the memory of read-ahead.
type room struct {
	mu   sync.Mutex
	free int64 // bytes
}

func (r *room) take(n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.free < n {
		return false
	}
	r.free -= n
	return true
}

func (r *room) give(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free += n
}

// ahead notes a read, and begins to read the pages that are likely to follow. It returns the pages that have bytes of
// the read.
func (f *file) ahead(off, n int64) map[int64]*page {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.follow(off, n)
	f.extend(s)
	if len(f.pages) == 0 {
		return nil
	}
	found := map[int64]*page{}
	for at := off / pageBytes; at*pageBytes < off+n; at++ {
		if pg := f.pages[at]; pg != nil {
			found[at] = pg
		}
		if (at+1)*pageBytes <= off+n && s.hits >= 2 { // the stream has passed it
			f.drop(at)
		}
	}
	return found
}

// extend begins to read the pages in front of a stream. A page that is late does not stop the ones behind it. The lock
// is held.
func (f *file) extend(s *stream) {
	if s.hits < 2 {
		return
	}
	first, last := s.next/pageBytes, (f.of.size-1)/pageBytes
	depth := int64(min(1<<min(s.hits-2, 10), mostAhead))
	for at := max(s.until, first); at <= min(first+depth, last) && s.flying < mostFlying; at++ {
		if f.pages[at] == nil && !f.isKept(at) && !f.start(s, at) {
			break
		}
		s.until = at + 1
	}
}

// isKept reports whether the cache has a page. Then it is read when it is needed.
func (f *file) isKept(at int64) bool {
	return f.host.cache != nil && f.host.cache.Has(f.key, at*pageBytes, min(pageBytes, f.of.size-at*pageBytes))
}

// follow returns the stream that a read continues, or a new one in place of the oldest. The lock is held.
func (f *file) follow(off, n int64) *stream {
	oldest, turn := 0, uint64(0)
	for i, s := range f.streams {
		turn = max(turn, s.turn)
		if s.turn < f.streams[oldest].turn {
			oldest = i
		}
	}
	for _, s := range f.streams {
		if s.turn > 0 && off >= s.next-n && off <= s.next+jump && off+n > s.next {
			s.next, s.hits, s.turn = off+n, s.hits+1, turn+1
			return s
		}
	}
	if s := f.streams[oldest]; s.hits >= 2 { // its pages are not read any more
		for at := s.next / pageBytes; at < s.until; at++ {
			if pg := f.pages[at]; pg != nil {
				pg.cancel()
				f.drop(at)
			}
		}
		s.hits = 0
	}
	f.streams[oldest] = &stream{next: off + n, turn: turn + 1}
	return f.streams[oldest]
}

// start begins to read a page of a stream, if there is memory for it. The lock is held.
func (f *file) start(s *stream, at int64) bool {
	if f.ctx.Err() != nil || !f.host.room.take(pageBytes) {
		return false
	}
	s.flying++
	f.pages[at] = f.begin(at*pageBytes, min(pageBytes, f.of.size-at*pageBytes), func(err error) {
		s.flying--
		if err == nil {
			f.extend(s)
		}
	})
	return true
}

// begin begins to read a range. It calls landed with the lock when the range has come or failed.
func (f *file) begin(off, n int64, landed func(error)) *page {
	ctx, cancel := context.WithCancel(f.ctx)
	pg := &page{ready: make(chan struct{}), cancel: cancel}
	go func() {
		defer cancel()
		data := make([]byte, n)
		if pg.err = f.load(ctx, data, off); pg.err == nil {
			pg.data = data
		}
		close(pg.ready)
		f.mu.Lock()
		defer f.mu.Unlock()
		landed(pg.err)
	}()
	return pg
}

// drop gives a page up. Readers that have it keep it. The lock is held.
func (f *file) drop(at int64) {
	if pg := f.pages[at]; pg != nil {
		delete(f.pages, at)
		f.host.room.give(pageBytes)
	}
}

// forget drops a page that could not be read.
func (f *file) forget(at int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drop(at)
}
