package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Pages makes and opens pages. Files does so in a run, heartbeattest.Memory in a simulation.
type Pages interface {
	// Create makes this process's page under a path that ends in -<pid>.beat.
	Create(path string) (*Page, error)
	// Open watches the page of another process.
	Open(path string) (*Monitor, error)
}

// Files are the pages of the processes of this host.
type Files struct{}

var _ Pages = Files{}

// Path returns the name of the page of one process of a slot, in the run directory.
func Path(dir, name string, pid int) string {
	return filepath.Join(dir, fmt.Sprintf("%s-%d%s", name, pid, suffix))
}

const suffix = ".beat"

// owner returns the process that a path names.
func owner(path string) (int, error) {
	base, ok := strings.CutSuffix(filepath.Base(path), suffix)
	pid, err := strconv.Atoi(base[strings.LastIndexByte(base, '-')+1:])
	if !ok || err != nil || pid <= 0 {
		return 0, fmt.Errorf("heartbeat page %s: want a name like loader-0-123%s", path, suffix)
	}
	return pid, nil
}

// Create makes the page of this process. Its name appears when the page is complete, and replaces an older one.
func (Files) Create(path string) (*Page, error) {
	pid, err := owner(path)
	if err != nil {
		return nil, fmt.Errorf("create %w", err)
	}
	if pid != os.Getpid() {
		return nil, fmt.Errorf("create heartbeat page %s: the name must end in pid %d", path, os.Getpid())
	}
	fd, err := unix.MemfdCreate("millrace-beat", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create heartbeat page: %w", err)
	}
	file := os.NewFile(uintptr(fd), path)
	if err := file.Truncate(Size); err != nil {
		return nil, errors.Join(fmt.Errorf("create heartbeat page: %w", err), file.Close())
	}
	mapped, err := unix.Mmap(fd, 0, Size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("map heartbeat page: %w", err), file.Close())
	}
	unlink := func() error {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	}
	self, err := openProcess("/proc", pid)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create heartbeat page: %w", err), unix.Munmap(mapped), file.Close())
	}
	remove := func() error { return errors.Join(unlink(), unix.Munmap(mapped), file.Close(), self.close()) }
	p := NewPage((*Words)(unsafe.Pointer(&mapped[0])), path, pid,
		Thread{Keep: keepThread, Pause: sleep, Close: remove, Threads: self.threads})
	if err := errors.Join(unlink(), os.Symlink(fmt.Sprintf("/proc/%d/fd/%d", pid, fd), path)); err != nil {
		return nil, errors.Join(fmt.Errorf("create heartbeat page: %w", err), remove())
	}
	return p, nil
}

// Open maps the page of a process of this host. It fails if the process is dead: the page is gone, or belongs to
// another process.
func (Files) Open(path string) (*Monitor, error) {
	pid, err := owner(path)
	if err != nil {
		return nil, fmt.Errorf("open %w", err)
	}
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // opening a pipe must not wait
	if err != nil {
		return nil, fmt.Errorf("open heartbeat page: %w", err)
	}
	defer file.Close()
	if st, err := file.Stat(); err != nil || !st.Mode().IsRegular() || st.Size() != Size {
		return nil, fmt.Errorf("open heartbeat page %s: it holds no heartbeats", path)
	}
	mapped, err := unix.Mmap(int(file.Fd()), 0, Size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map heartbeat page %s: %w", path, err)
	}
	words := (*Words)(unsafe.Pointer(&mapped[0]))
	if err := words.check(pid); err != nil {
		return nil, errors.Join(fmt.Errorf("open heartbeat page %s: %w", path, err), unix.Munmap(mapped))
	}
	watched, err := openProcess("/proc", pid)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open heartbeat page %s: %w", path, err), unix.Munmap(mapped))
	}
	return NewMonitor(words, pid, Kernel{
		IsDown:  watched.isDown,
		HasRun:  hasRun(pid),
		Threads: watched.threads,
		Close:   func() error { return errors.Join(unix.Munmap(mapped), watched.close()) },
	}), nil
}

// sleep keeps the calling thread. A goroutine that waits for a timer of the runtime may be woken late, by another
// thread.
func sleep(_ context.Context, d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&ts, nil) // a signal ends it early, which costs an extra beat
}

// keepThread reserves an operating system's thread for the beats, and asks the kernel to wake it before others.
func keepThread() (free func()) {
	runtime.LockOSThread()
	prefer()
	return runtime.UnlockOSThread
}

// prefer asks the kernel to wake this thread before others. The kernel refuses most users. Beats of a busy host are
// late then, which Judge tolerates.
func prefer() { _ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), -10) }
