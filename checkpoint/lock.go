package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

// lockDir takes the folder's lock, which is the solo lease of a run. The kernel gives it back when the process ends, however it ends.
func lockDir(fs vfs.FS, dir string) (*pebble.Lock, error) {
	lock, err := pebble.LockDirectory(dir, fs)
	var file *os.PathError
	if err == nil || errors.As(err, &file) {
		return lock, err // taken; or the lock's file could not be made
	}
	by := ""
	// Only another process makes the kernel refuse. Where this one has the lock itself, looking at the file would lose it: fcntl locks go with any close.
	var refused syscall.Errno
	if errors.As(err, &refused) && fs == vfs.Default {
		by = holder(fs.PathJoin(dir, "LOCK"))
	}
	return nil, fmt.Errorf("%w by another `millrace up`%s: stop that one first, or give this run a directory of its own", ErrLocked, by)
}

// holder names the process that has the lock, as far as the system tells.
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

// lifespan lets calls into an open store and lets Close wait for them. Unlike a read lock it may be entered again from within a call (a Replay whose
// function commits), also while Close waits: that inner call is turned away instead of waiting for itself.
type lifespan struct {
	mu     sync.Mutex
	idle   sync.Cond // signalled when calls falls to 0
	calls  int
	closed bool
}

func (l *lifespan) init() { l.idle.L = &l.mu }

func (l *lifespan) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.calls++
	return true
}

func (l *lifespan) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls--; l.calls == 0 {
		l.idle.Broadcast()
	}
}

// end turns new calls away and waits for those under way. It reports whether it was the first.
func (l *lifespan) end() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.closed = true
	for l.calls > 0 {
		l.idle.Wait()
	}
	return true
}
