package heartbeat

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// The pace of the beats.
const (
	Active = 2 * time.Millisecond  // while something is asked of the process
	Idle   = 20 * time.Millisecond // once nothing was for idleAfter

	idleAfter = time.Second
)

// Size is that of a page in bytes.
const Size = 4096

// magic is "MRBEAT01" read as a little-endian word.
const magic = 0x313054414542524d

// page is what is shared: little-endian words of 64 bits (on the only kind of machine that this program is built for), on lines of their
// own where different threads write them. Each word is read and written whole; a reader sees no order between them.
type page struct {
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
	ended    atomic.Uint64 // 256: requests done with, whatever came of them
	_        [Size/8 - 33]uint64
}

// Page is the own page of a process. Its methods may be called concurrently; a nil *Page counts nothing.
type Page struct {
	page  *page
	path  string
	pause func(ctx context.Context, d time.Duration)
	alone func() (done func()) // has what beats keep an operating system's thread to itself
	close func() error
}

// Path is what the page is named by: LoaderHello.beat.
func (p *Page) Path() string {
	if p == nil {
		return ""
	}
	return p.path
}

// Run beats until ctx ends.
func (p *Page) Run(ctx context.Context) error {
	defer p.alone()()
	var seen uint64
	var still time.Duration // since anything was asked or done
	for ctx.Err() == nil {
		ended := p.page.ended.Load()
		begun := p.page.begun.Load()
		if now := begun + p.page.progress.Load(); now != seen || begun != ended {
			seen, still = now, 0
		}
		period := Active
		if still >= idleAfter {
			period = Idle
		}
		p.page.period.Store(uint64(period))
		p.page.beats.Add(1)
		p.pause(ctx, period)
		still += period
	}
	return nil
}

// Progress counts a piece of work done: a row served, a record decoded.
func (p *Page) Progress() {
	if p != nil {
		p.page.progress.Add(1)
	}
}

// Begin counts a request that was taken up; End has to follow.
func (p *Page) Begin() {
	if p != nil {
		p.page.begun.Add(1)
	}
}

// End counts a request that is done with.
func (p *Page) End() {
	if p != nil {
		p.page.ended.Add(1)
	}
}

// Close takes the page's name away; who has it open keeps it. Run must have returned, and nothing is counted afterwards.
func (p *Page) Close() error {
	if p == nil {
		return nil
	}
	return p.close()
}

// Reading is a page at one moment.
type Reading struct {
	Pid      int
	Beats    uint64
	Period   time.Duration // until the next beat, as promised
	Progress uint64        // pieces of work done
	Pending  uint64        // requests in flight
	Down     bool          // the kernel says that it is stopped, ending or gone; asked only where there was no new beat
	Ran      bool          // the kernel says that it had processor time since that was last asked: where there was no new beat
}

// Monitor watches the page of another process. Not safe for concurrent use.
type Monitor struct {
	page  *page
	pid   int
	beats uint64 // at the last look
	down  func() bool
	ran   func() bool // since the call before
	close func() error
}

// Sample reads the page. It stays readable after its owner has died.
func (m *Monitor) Sample() Reading {
	ended := m.page.ended.Load() // before begun, so that their difference is never negative
	r := Reading{Pid: m.pid, Beats: m.page.beats.Load(), Period: time.Duration(m.page.period.Load()), Progress: m.page.progress.Load(),
		Pending: m.page.begun.Load() - ended}
	if r.Beats == m.beats {
		r.Down, r.Ran = m.down(), m.ran()
	}
	m.beats = r.Beats
	return r
}

// Close lets go of the page; no Sample may follow.
func (m *Monitor) Close() error { return m.close() }

func (p *page) init(pid int) {
	p.pid.Store(uint64(pid))
	p.period.Store(uint64(Active))
	p.magic.Store(magic)
}

// check tells what is wrong with a page that claims to be of a process.
func (p *page) check(pid int) error {
	if p.magic.Load() != magic {
		return fmt.Errorf("it holds no heartbeats")
	}
	if owner := p.pid.Load(); owner != uint64(pid) {
		return fmt.Errorf("it belongs to process %d, not %d", owner, pid)
	}
	return nil
}
