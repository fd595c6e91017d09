// Package openfiles bounds the data files that a process has open, over all of its sources.
package openfiles

import (
	"container/list"
	"errors"
	"fmt"
	"io"
	"sync"

	"golang.org/x/sys/unix"

	"millrace/sources/store/remedy"
)

// Pool has the open files of a process. It is safe for concurrent use.
type Pool struct {
	limit int

	mu   sync.Mutex
	room *sync.Cond
	open int       // files, also those that are being opened
	idle list.List // of *Handle: open and not used, the least recently used first
}

// The default limit leaves descriptors for sockets, pipes, indexes and the journal.
const (
	leftOver = 256
	mostOpen = 4096
)

// Default returns the limit of a pool that follows from the process's own limit of descriptors.
func Default() int {
	n := int(min(descriptors(), 1<<20))
	return max(1, min(n-min(leftOver, n/2), mostOpen))
}

// descriptors returns the limit of descriptors of this process.
func descriptors() uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 1024
	}
	return limit.Cur
}

// New returns a pool of at most limit open files, at least one. 0 is the default limit.
func New(limit int) *Pool {
	if limit <= 0 {
		limit = Default()
	}
	p := &Pool{limit: limit}
	p.room = sync.NewCond(&p.mu)
	return p
}

// Count returns the number of files that are open now.
func (p *Pool) Count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open
}

// File is a file that is open while it is used, and after that for as long as the pool has room. It is safe for
// concurrent use.
type File struct {
	pool *Pool
	make func() (io.Closer, error)

	opening sync.Mutex // held while the file is opened

	// guarded by the pool's lock
	now    *Handle // nil: not open
	closed bool
}

// Handle is one opening of a file. Its users release it.
type Handle struct {
	Opened io.Closer
	file   *File

	// guarded by the pool's lock
	uses int
	at   *list.Element // in idle, or nil
}

// File returns a file that open opens, and opens again after the pool has closed it.
func (p *Pool) File(open func() (io.Closer, error)) *File { return &File{pool: p, make: open} }

// Acquire returns the open file. The caller releases it, and holds no other file of the pool meanwhile: Acquire waits
// until one of the pool's files is not used.
func (f *File) Acquire() (*Handle, error) {
	if h := f.use(); h != nil {
		return h, nil
	}
	f.opening.Lock()
	defer f.opening.Unlock()
	if h := f.use(); h != nil {
		return h, nil
	}
	file, err := f.pool.Open(f.make)
	if err != nil {
		return nil, err
	}
	f.pool.mu.Lock()
	defer f.pool.mu.Unlock()
	f.now = &Handle{Opened: file, file: f, uses: 1}
	return f.now, nil
}

// use returns the handle if the file is open.
func (f *File) use() *Handle {
	f.pool.mu.Lock()
	defer f.pool.mu.Unlock()
	h := f.now
	if h == nil {
		return nil
	}
	h.uses++
	if h.at != nil {
		f.pool.idle.Remove(h.at)
		h.at = nil
	}
	return h
}

// Release ends a use that Acquire began.
func (h *Handle) Release() {
	p := h.file.pool
	p.mu.Lock()
	h.uses--
	closes := false
	switch {
	case h.uses > 0:
	case h.file.closed || h.file.now != h:
		p.drop(h)
		closes = true
	default:
		h.at = p.idle.PushBack(h)
		p.room.Signal()
	}
	p.mu.Unlock()
	if closes {
		h.Opened.Close()
		p.Closed()
	}
}

// Judge takes the error of a use, or nil. If the descriptor may be dead after this error, the opening goes out of use:
// the next Acquire opens the file anew, and the last user's Release closes the old opening.
func (h *Handle) Judge(err error) {
	if err == nil {
		return
	}
	if r, _ := remedy.Of(err); r != remedy.Anew {
		return
	}
	p := h.file.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if h.file.now == h {
		h.file.now = nil
	}
}

// Close closes the file, at the end of its uses if there are any.
func (f *File) Close() error {
	p := f.pool
	p.mu.Lock()
	f.closed = true
	h := f.now
	if h == nil || h.uses > 0 {
		p.mu.Unlock()
		return nil
	}
	p.drop(h)
	p.mu.Unlock()
	defer p.Closed()
	return h.Opened.Close()
}

// Open opens a file that counts as open until its owner has closed it and calls Closed. It makes room first, and waits
// if all files are used.
func (p *Pool) Open(open func() (io.Closer, error)) (io.Closer, error) {
	p.mu.Lock()
	for p.open >= p.limit {
		if oldest := p.idle.Front(); oldest != nil {
			h := oldest.Value.(*Handle)
			p.drop(h)
			p.mu.Unlock()
			h.Opened.Close()
			p.mu.Lock()
			p.open--
			continue
		}
		p.room.Wait()
	}
	p.open++
	p.mu.Unlock()
	file, err := open()
	if isExhausted(err) {
		p.closeIdle()
		if file, err = open(); isExhausted(err) {
			err = &Exhausted{cause: err, open: p.Count() - 1, limit: p.limit}
		}
	}
	if err != nil {
		p.Closed()
		return nil, err
	}
	return file, nil
}

// Closed notes that a file was closed. The caller of Open closes its file and calls Closed.
func (p *Pool) Closed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open--
	p.room.Signal()
}

// drop takes a handle out of its file and of the idle ones. The lock is held. The caller closes what the handle has
// open, which counts until then.
func (p *Pool) drop(h *Handle) {
	if h.file.now == h {
		h.file.now = nil
	}
	if h.at != nil {
		p.idle.Remove(h.at)
		h.at = nil
	}
}

func (p *Pool) closeIdle() {
	p.mu.Lock()
	var idle []*Handle
	for p.idle.Len() > 0 {
		h := p.idle.Front().Value.(*Handle)
		p.drop(h)
		idle = append(idle, h)
	}
	p.mu.Unlock()
	for _, h := range idle {
		h.Opened.Close()
		p.Closed()
	}
}

func isExhausted(err error) bool { return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) }

// Exhausted is the error of a file that could not be opened for want of descriptors, after all unused ones were closed.
// Trying again does not help, so the error does not wrap its cause.
type Exhausted struct {
	cause       error
	open, limit int
}

// Error names the file, the limits and the cure.
func (e *Exhausted) Error() string {
	return fmt.Sprintf("%v: the process may have %d descriptors (ulimit -n), of which %d are data files "+
		"(limits.open_files: %d); raise `ulimit -n`, or set a lower limits.open_files", e.cause, descriptors(), e.open,
		e.limit)
}

var _ error = (*Exhausted)(nil)
