package sources

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"
)

// readTries is how often a failing read is tried; the waits between them double from retryWait, some 1.5 s in all.
const (
	readTries = 6
	retryWait = 50 * time.Millisecond
	tellTry   = 5 // failing that often, some 0.75 s, is told
)

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

// retryFile retries reads that fail for the host's reasons (a network file system's hiccup). It remembers a failure that stayed,
// because formats may report it as damage, which it is not.
type retryFile struct {
	OpenFile
	done    <-chan struct{} // closed when the source is: nobody waits any more
	wait    time.Duration
	trouble *trouble
	failed  atomic.Pointer[error]
}

// ReadAt implements io.ReaderAt.
func (f *retryFile) ReadAt(p []byte, off int64) (int, error) {
	wait := f.wait
	for try := 1; ; try++ {
		n, err := f.OpenFile.ReadAt(p, off)
		if err == nil || errorsIsAny(err, io.EOF, io.ErrUnexpectedEOF) {
			return n, err
		}
		if try == tellTry {
			f.trouble.begin(fmt.Sprintf("reading %s fails and is tried again: %v", f.Name(), err))
			defer f.trouble.end()
		}
		if try == readTries || errorsIsAny(err, fs.ErrClosed, fs.ErrPermission, fs.ErrInvalid) || !f.pause(wait) {
			f.failed.Store(&err)
			return n, err
		}
		wait *= 2
	}
}

// pause waits, false if the source was closed meanwhile.
func (f *retryFile) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-f.done:
		return false
	}
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
