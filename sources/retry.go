package sources

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zeebo/xxh3"

	"millrace"
	"millrace/internal/activity"
	"millrace/sources/facts/guard"
	"millrace/sources/facts/identity"
	"millrace/sources/store/openfiles"
	"millrace/sources/store/remedy"
)

// A failing read is tried several times. The waits double from retryWait: without long patience, some 1.5 s in all.
const (
	readTries = 6
	retryWait = 50 * time.Millisecond
	retryMost = time.Second   // the longest wait
	storeMost = 4 * retryMost // the longest wait for a store, whose load many readers add up to
	tellTry   = 5             // tries, some 0.75 s, after which the trouble is reported
)

// Passing reports whether the host caused an error that may end by itself: a missing file, a device that does not
// answer, a permission that is missing for now. Bad bytes are no such error.
func Passing(err error) bool {
	r, _ := remedyOf(err)
	return r != remedy.Final
}

// remedyOf returns the next act after an error. known is false unless the kernel or a store caused it.
func remedyOf(err error) (r remedy.Remedy, known bool) {
	switch {
	case errors.Is(err, ErrUnavailable):
		return remedy.Again, true // a store's file holds no descriptor
	case errors.Is(err, millrace.ErrMismatch):
		return remedy.Final, true
	}
	return remedy.Of(err)
}

// remedyOfRead returns the next act after a failed read. A file may have errors of its own; they are the host's.
func remedyOfRead(err error) remedy.Remedy {
	var exhausted *openfiles.Exhausted
	r, known := remedyOf(err)
	if known || errors.As(err, &exhausted) || isAny(err, io.EOF, io.ErrUnexpectedEOF, fs.ErrClosed, fs.ErrPermission,
		fs.ErrInvalid) {
		return r
	}
	return remedy.Again
}

// ErrUnavailable is the class of errors of a store that does not answer, or asks to wait. It may answer later.
var ErrUnavailable = errors.New("the store does not answer")

// trouble reports when reads of a source have failed for long, and when none fails any more.
type trouble struct {
	tell func(text string)

	mu      sync.Mutex // held during tell, so that calls do not overlap
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

// patience has the settings of a source's waits for a faulty host, for example for a network file system that is not
// mounted now.
type patience struct {
	done    <-chan struct{} // closed with the source; ends all waits
	wait    time.Duration   // before the second try
	long    bool            // try until the source is closed
	tried   func()          // called after every try
	trouble *trouble
}

// try repeats an act until it succeeds, its error is not passing, or the tries or the time are used up.
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
		most := retryMost
		if errors.Is(err, ErrUnavailable) {
			most = storeMost
		}
		wait = min(2*wait, max(most, p.wait))
	}
}

// isOver reports whether the source is closed.
func (p *patience) isOver() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// pause waits, and returns false if the wait was cut short.
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

// retryFile repeats failing reads. It remembers a lasting failure, because formats may report it as damage.
type retryFile struct {
	held     *openfiles.File // of an OpenFile
	name     string
	size     int64
	patience *patience
	failed   atomic.Pointer[error]
	guard    *guard.Guard // nil: changes are not noticed
	opened   guard.Opened
	hash     *contentHash // nil: the content is not digested
	activity *activity.Source
	shard    string // name in the manifest
}

var (
	_ File     = (*retryFile)(nil)
	_ Expecter = (*retryFile)(nil)
)

// Name implements File.
func (f *retryFile) Name() string { return f.name }

// ShardName returns the name of the file's shard in the manifest.
func (f *retryFile) ShardName() string { return f.shard }

// Size implements File.
func (f *retryFile) Size() int64 { return f.size }

// ReadAt implements io.ReaderAt.
func (f *retryFile) ReadAt(p []byte, off int64) (n int, err error) {
	reading := f.activity.Begin(activity.Read, f.shard)
	defer func() { reading.End(int64(n)) }()
	passing := func(err error) bool { return remedyOfRead(err) != remedy.Final }
	err = f.patience.try(context.Background(), "reading "+f.name, passing, func() (err error) {
		if n, err = f.readOnce(p, off); err != nil && passing(err) {
			reading.Turn(activity.Storage)
		}
		return err
	})
	f.hash.add(p[:n], off)
	if err != nil && !isAny(err, io.EOF, io.ErrUnexpectedEOF) {
		err = remedy.Explain(err)
		f.failed.Store(&err)
	}
	return n, err
}

// readOnce reads, and returns no byte if the file is not the shard any more.
func (f *retryFile) readOnce(p []byte, off int64) (n int, err error) {
	var now identity.File
	var unknown error
	err = f.use(func(file OpenFile) (err error) {
		n, err = file.ReadAt(p, off)
		if f.guard != nil {
			now, unknown = file.Identity()
		}
		return err
	})
	if unknown == nil && now != (identity.File{}) {
		// The check comes after the read: bytes that were read before a change are served, later ones are not.
		if changed := f.guard.Check(&f.opened, now); changed != nil {
			return 0, changed
		}
	}
	return n, err
}

// Expect implements Expecter. The file need not stay open: reads of a file that was opened again are not expected.
func (f *retryFile) Expect(list func() []Range) (done func()) {
	done = func() {}
	_ = f.use(func(file OpenFile) error { // the reads report why a file cannot be opened
		done = Expect(file, list)
		return nil
	})
	return done
}

// use opens the file for an act, if it is not open. After an error of which the descriptor may be dead, the next use
// opens the file anew.
func (f *retryFile) use(act func(OpenFile) error) error {
	handle, err := f.held.Acquire()
	if err != nil {
		return err
	}
	defer handle.Release()
	err = act(handle.Opened.(OpenFile))
	handle.Judge(err)
	return err
}

// failure returns the error of the read that failed for good, if one did.
func (f *retryFile) failure() error {
	if err := f.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// content returns the digest of an open file, or nil if the file was not read in order. It reads the end that the
// format left out.
func (f *retryFile) content() ([]byte, error) {
	rest := NewReader(f, f.hash.hashed(), f.Size())
	if _, err := io.Copy(io.Discard, rest); err != nil {
		return nil, err
	}
	sum := f.hash.sum(f.Size())
	f.hash = nil
	return sum, nil
}

// contentHash hashes a file that is read from beginning to end. It ignores bytes that are read again. A read that
// leaves a gap makes it useless. It is safe for concurrent use.
type contentHash struct {
	mu   sync.Mutex
	hash *xxh3.Hasher
	next int64 // bytes below are hashed
	gap  bool
}

func newContentHash() *contentHash { return &contentHash{hash: xxh3.New()} }

func (h *contentHash) add(p []byte, off int64) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch end := off + int64(len(p)); {
	case off > h.next:
		h.gap = true
	case end > h.next:
		h.hash.Write(p[h.next-off:])
		h.next = end
	}
}

// hashed returns the offset up to which the file is hashed.
func (h *contentHash) hashed() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.next
}

// sum returns the digest of a file of this size, nil if not all of it was read in order.
func (h *contentHash) sum(size int64) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gap || h.next != size {
		return nil
	}
	sum := h.hash.Sum128().Bytes()
	return sum[:]
}
