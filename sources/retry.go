package sources

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"millrace"
	"millrace/sources/identity"
)

// How often a failing read is tried where nobody wants to wait longer; the waits between them double from retryWait,
// some 1.5 s in all.
const (
	readTries = 6
	retryWait = 50 * time.Millisecond
	retryMost = time.Second // wait of those who have patience
	tellTry   = 5           // failing that often, some 0.75 s, is told
)

// Passing tells whether an error is of the host and may be over by itself: a file that is not there just now, a
// device that does not answer. What is wrong with the bytes never is, nor what somebody was not allowed.
func Passing(err error) bool {
	var errno syscall.Errno
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true
	case errors.Is(err, millrace.ErrMismatch), !errors.As(err, &errno):
		return false
	}
	return !errorsIsAny(err, fs.ErrPermission, fs.ErrInvalid, syscall.EISDIR, syscall.ENOTDIR, syscall.ELOOP, syscall.ENAMETOOLONG)
}

// trouble tells whether any read of a source has been failing for long.
type trouble struct {
	tell func(text string)

	mu      sync.Mutex // held while it is told, so that calls do not overlap
	failing int        // reads
}

func (t *trouble) begin(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failing++; t.failing == 1 {
		t.tell(text)
	}
}

func (t *trouble) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failing--; t.failing == 0 {
		t.tell("")
	}
}

// patience is how a source waits for what fails for the host's reasons (a network file system's hiccup, one that is
// not mounted just now).
type patience struct {
	done    <-chan struct{} // closed when the source is: nobody waits any more
	wait    time.Duration   // before the second try
	long    bool            // as long as it takes
	tried   func()          // told of every try
	trouble *trouble
}

// try does an act until it succeeds, or fails in a way that another try does not mend, or there is no time for more.
func (p *patience) try(ctx context.Context, what string, passing func(error) bool, act func() error) error {
	wait := p.wait
	for try := 1; ; try++ {
		err := act()
		p.tried()
		if err == nil || !passing(err) {
			return err
		}
		if try == tellTry {
			p.trouble.begin(fmt.Sprintf("%s fails and is tried again: %v", what, err))
			defer p.trouble.end()
		}
		if try == readTries && !p.long || !p.pause(ctx, wait) {
			return err
		}
		wait = min(2*wait, max(retryMost, p.wait))
	}
}

// over reports whether the source is closed.
func (p *patience) over() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// pause waits, false if that was cut short.
func (p *patience) pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-p.done:
	case <-ctx.Done():
	}
	return false
}

// retryFile tries failing reads again. It remembers a failure that stayed, because formats may report it as damage,
// which it is not.
type retryFile struct {
	OpenFile
	patience *patience
	failed   atomic.Pointer[error]
	guard    *guard                        // nil: nobody asks whether it is still the shard
	opened   atomic.Pointer[identity.File] // as last found to be the shard
	hash     *contentHash                  // nil: nobody asks for a digest of the content
}

// ReadAt implements io.ReaderAt.
func (f *retryFile) ReadAt(p []byte, off int64) (n int, err error) {
	passing := func(err error) bool {
		return !errorsIsAny(err, io.EOF, io.ErrUnexpectedEOF, fs.ErrClosed, fs.ErrPermission, fs.ErrInvalid)
	}
	err = f.patience.try(context.Background(), "reading "+f.Name(), passing, func() error {
		n, err = f.OpenFile.ReadAt(p, off)
		return err
	})
	// After the read: what was read before a change is served, what was read after it is not.
	if changed := f.guard.check(f); changed != nil {
		n, err = 0, changed
	}
	f.hash.add(p[:n], off)
	if err != nil && !errorsIsAny(err, io.EOF, io.ErrUnexpectedEOF) {
		f.failed.Store(&err)
	}
	return n, err
}

// failure returns the read that failed for good, if one did.
func (f *retryFile) failure() error {
	if err := f.failed.Load(); err != nil {
		return *err
	}
	return nil
}

func errorsIsAny(err error, targets ...error) bool {
	for _, t := range targets {
		if errors.Is(err, t) {
			return true
		}
	}
	return false
}
