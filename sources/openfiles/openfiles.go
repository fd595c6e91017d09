// Package openfiles bounds the data files that a process has open, over all of its sources.
package openfiles

import (
	"container/list"
	"errors"
	"fmt"
	"io"
	"sync"

	"golang.org/x/sys/unix"
)

// Pool has the open files of a process. It is safe for concurrent use.
type Pool struct {
	limit int

	mu   sync.Mutex
	room *sync.Cond
	open int       // files, also those that are being opened
	idle list.List // of *File: open and not used, the least recently used first
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
	file   io.Closer // nil: not open
	uses   int
	at     *list.Element // in idle, or nil
	closed bool
}

// File returns a file that open opens, and opens again after the pool has closed it.
func (p *Pool) File(open func() (io.Closer, error)) *File { return &File{pool: p, make: open} }

// Acquire returns the open file. The caller releases it, and holds no other file of the pool meanwhile: Acquire waits
// until one of the pool's files is not used.
func (f *File) Acquire() (io.Closer, error) {
	if file := f.use(); file != nil {
		return file, nil
	}
	f.opening.Lock()
	defer f.opening.Unlock()
	if file := f.use(); file != nil {
		return file, nil
	}
	file, err := f.pool.Open(f.make)
	if err != nil {
		return nil, err
	}
	f.pool.mu.Lock()
	defer f.pool.mu.Unlock()
	f.file, f.uses = file, 1
	return file, nil
}

// use returns the file if it is open.
func (f *File) use() io.Closer {
	f.pool.mu.Lock()
	defer f.pool.mu.Unlock()
	if f.file == nil {
		return nil
	}
	f.uses++
	if f.at != nil {
		f.pool.idle.Remove(f.at)
		f.at = nil
	}
	return f.file
}

// Release ends a use that Acquire began.
func (f *File) Release() {
	p := f.pool
	p.mu.Lock()
	f.uses--
	var close io.Closer
	switch {
	case f.uses > 0:
	case f.closed:
		close, f.file = f.file, nil
	default:
		f.at = p.idle.PushBack(f)
		p.room.Signal()
	}
	p.mu.Unlock()
	if close != nil {
		close.Close()
		p.Closed()
	}
}

// Close closes the file, at the end of its uses if there are any.
func (f *File) Close() error {
	p := f.pool
	p.mu.Lock()
	f.closed = true
	if f.file == nil || f.uses > 0 {
		p.mu.Unlock()
		return nil
	}
	file := p.drop(f)
	p.mu.Unlock()
	defer p.Closed()
	return file.Close()
}

// Open opens a file that counts as open until its owner has closed it and calls Closed. It makes room first, and waits
// if all files are used.
func (p *Pool) Open(open func() (io.Closer, error)) (io.Closer, error) {
	p.mu.Lock()
	for p.open >= p.limit {
		if oldest := p.idle.Front(); oldest != nil {
			file := p.drop(oldest.Value.(*File))
			p.mu.Unlock()
			file.Close()
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

// drop takes a file out of the idle ones. The lock is held. The caller closes the file, which counts until then.
func (p *Pool) drop(f *File) io.Closer {
	file := f.file
	f.file = nil
	if f.at != nil {
		p.idle.Remove(f.at)
		f.at = nil
	}
	return file
}

func (p *Pool) closeIdle() {
	p.mu.Lock()
	var files []io.Closer
	for p.idle.Len() > 0 {
		files = append(files, p.drop(p.idle.Front().Value.(*File)))
	}
	p.mu.Unlock()
	for _, file := range files {
		file.Close()
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
