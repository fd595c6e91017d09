package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/sys/unix"

	"millrace/internal/limits"
)

// lockPoll is the pause between two attempts to take a folder's lock.
const lockPoll = 10 * time.Millisecond

// Lock takes the lock of a store's folder as Open does, and opens nothing. The folder exists.
func Lock(c Config) (io.Closer, error) { return lockDir(c.withDefaults()) }

// lockDir takes the folder's lock, which is the solo lease of a run. The kernel releases it when the process ends, also
// by a crash. lockDir waits for another process, but not for this one.
func lockDir(c Config) (*pebble.Lock, error) {
	by := ""
	for waited := time.Duration(0); ; waited += lockPoll {
		lock, err := pebble.LockDirectory(c.Dir, c.Disk.FS())
		var file *os.PathError
		if err == nil || errors.As(err, &file) {
			return lock, err // taken, or the lock's file could not be created
		}
		// The kernel refuses only another process. If this process has the lock itself, opening the file here would
		// lose it: an fcntl lock ends with any close of its file.
		var refused syscall.Errno
		if !errors.As(err, &refused) || !c.Disk.IsSystem() {
			break
		}
		if refused != unix.EAGAIN && refused != unix.EACCES {
			return nil, limits.Lock("the journal in "+c.Dir, err,
				"name a --run-dir on a file system with locks, for example on a local disk")
		}
		if waited >= c.LockWait {
			by = holder(c.Disk.FS().PathJoin(c.Dir, "LOCK"))
			break
		}
		<-time.After(lockPoll)
	}
	return nil, fmt.Errorf(
		"%w by another `millrace up`%s: stop that one first, or give this run a directory of its own", ErrLocked, by)
}

// holder describes the process that has the lock, "" if the process is unknown.
func holder(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lock); err != nil || lock.Type == unix.F_UNLCK || lock.Pid <= 0 {
		return ""
	}
	return fmt.Sprintf(" (process %d)", lock.Pid)
}

// gate counts the calls in progress on an open store and admits one writer at a time. close waits until all calls have
// ended. A call may enter the gate again, which a read lock does not allow: for example, the function of a Replay may
// commit. While close waits, the gate refuses such an inner call.
type gate struct {
	readOnly bool
	// writing is held during the whole of a write, fsync included.
	writing sync.Mutex

	mu       sync.Mutex
	idle     sync.Cond // signalled when calls falls to 0
	calls    int
	isClosed bool
}

func newGate(readOnly bool) *gate {
	g := &gate{readOnly: readOnly}
	g.idle.L = &g.mu
	return g
}

// enter begins a call that needs an open store. The caller calls leave at the call's end. The error is ErrClosed.
func (g *gate) enter() (leave func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isClosed {
		return nil, ErrClosed
	}
	g.calls++
	return g.leave, nil
}

// enterWrite is enter for a call that writes. The call holds g.writing until it leaves.
func (g *gate) enterWrite() (leave func(), err error) {
	if g.readOnly {
		return nil, ErrReadOnly
	}
	if _, err := g.enter(); err != nil {
		return nil, err
	}
	g.writing.Lock()
	return func() { g.writing.Unlock(); g.leave() }, nil
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.calls--; g.calls == 0 {
		g.idle.Broadcast()
	}
}

// close refuses new calls and waits for the calls in progress. It reports whether it is the first close.
func (g *gate) close() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isClosed {
		return false
	}
	g.isClosed = true
	for g.calls > 0 {
		g.idle.Wait()
	}
	return true
}
