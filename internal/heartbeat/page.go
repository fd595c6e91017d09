package heartbeat

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// The pace of the beats.
const (
	Active = 2 * time.Millisecond  // while a request is pending
	Idle   = 20 * time.Millisecond // after idleAfter without a request

	idleAfter = time.Second
)

// Size is the size of a page in bytes.
const Size = 4096

// magic is "MRBEAT01" read as a little-endian word.
const magic = 0x313054414542524d

// Words is the shared memory of a page: 64-bit words, little-endian on the machines that this program supports. Words
// of different threads are on different cache lines. Each word is read and written as a whole; a reader sees no order
// between them.
type Words struct {
	magic    atomic.Uint64 // offset 0; written last: a page without it is not ready
	pid      atomic.Uint64 // 8
	_        [6]uint64
	beats    atomic.Uint64 // 64: grows with every beat
	period   atomic.Uint64 // 72: nanoseconds until the next beat, as promised with the last one
	_        [6]uint64
	progress atomic.Uint64 // 128: pieces of work done
	_        [7]uint64
	begun    atomic.Uint64 // 192: requests taken up
	_        [7]uint64
	ended    atomic.Uint64 // 256: requests that ended, also by an error
	_        [Size/8 - 33]uint64
}

// Thread holds the functions of a page that differ between a run and a simulation.
type Thread struct {
	// Keep reserves the calling thread for the beats until free is called.
	Keep func() (free func())
	// Pause waits between two beats.
	Pause func(ctx context.Context, d time.Duration)
	// Close removes the page's name.
	Close func() error
	// Threads asks the kernel about this process; nil: it cannot be asked.
	Threads func() Threads
}

// Page is the page of this process. Its methods may be called concurrently. A nil *Page counts nothing.
type Page struct {
	words  *Words
	path   string
	thread Thread
	share  share
	stalls stalls // of its beats on the wire
	delays stalls // of its timers, long ones

	listeners atomic.Int32 // watchers of other hosts
}

// NewPage returns the page of process pid on zeroed words. Watchers may read the words afterwards.
func NewPage(words *Words, path string, pid int, thread Thread) *Page {
	words.pid.Store(uint64(pid))
	words.period.Store(uint64(Active))
	words.magic.Store(magic)
	return &Page{words: words, path: path, thread: thread}
}

// Path returns the name of the page. The loader sends it in LoaderHello.beat.
func (p *Page) Path() string {
	if p == nil {
		return ""
	}
	return p.path
}

// Run beats until ctx ends.
func (p *Page) Run(ctx context.Context) error {
	defer p.thread.Keep()()
	var seen uint64
	var still time.Duration // since the last request
	for ctx.Err() == nil {
		ended := p.words.ended.Load()
		if begun := p.words.begun.Load(); begun != seen || begun != ended {
			seen, still = begun, 0
		}
		period := Active
		if still >= idleAfter {
			period = Idle
		}
		p.words.period.Store(uint64(period))
		p.words.beats.Add(1)
		p.thread.Pause(ctx, period)
		still += period
	}
	return nil
}

// Progress counts a piece of work done: a row served, a record decoded.
func (p *Page) Progress() {
	if p != nil {
		p.words.progress.Add(1)
	}
}

// Begin counts a request that was taken up; End must follow.
func (p *Page) Begin() {
	if p != nil {
		p.words.begun.Add(1)
	}
}

// End counts a request that has ended, also by an error.
func (p *Page) End() {
	if p != nil {
		p.words.ended.Add(1)
	}
}

// Close removes the page's name. An open monitor keeps the memory. Call Close after Run has returned, and count nothing
// afterwards.
func (p *Page) Close() error {
	if p == nil {
		return nil
	}
	return p.thread.Close()
}

// check returns an error if the words are not a page of process pid.
func (w *Words) check(pid int) error {
	if w.magic.Load() != magic {
		return fmt.Errorf("it holds no heartbeats")
	}
	if owner := w.pid.Load(); owner != uint64(pid) {
		return fmt.Errorf("it belongs to process %d, not %d", owner, pid)
	}
	return nil
}
