package heartbeat

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
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
	remove := func() error { return errors.Join(unlink(), unix.Munmap(mapped), file.Close()) }
	p := NewPage((*Words)(unsafe.Pointer(&mapped[0])), path, pid, Thread{Keep: keepThread, Pause: sleep, Close: remove})
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
	state, err := os.Open(fmt.Sprintf("/proc/%d/task/%d/stat", pid, pid))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open heartbeat page %s: %w", path, err), unix.Munmap(mapped))
	}
	return NewMonitor(words, pid, Kernel{
		IsDown: func() bool { return isDown(state) },
		HasRun: hasRun(pid),
		Close:  func() error { return errors.Join(unix.Munmap(mapped), state.Close()) },
	}), nil
}

// exiting is the kernel's PF_EXITING among a thread's flags. A process with much memory stays in this state for long.
const exiting = 0x4

// isDown reads the state of a process's first thread (proc(5), stat). The open file is bound to that process, not to
// its number.
func isDown(state io.ReaderAt) bool {
	var buf [512]byte
	n, err := state.ReadAt(buf[:], 0)
	if err != nil && err != io.EOF {
		return errors.Is(err, unix.ESRCH)
	}
	_, rest, ok := bytes.Cut(buf[:n], []byte(") ")) // after the name; ours holds no bracket
	fields := bytes.Fields(rest)
	if !ok || len(fields) < 7 {
		return false
	}
	flags, err := strconv.ParseUint(string(fields[6]), 10, 64)
	return bytes.ContainsAny(fields[0], "TZX") || err == nil && flags&exiting != 0
}

// hasRun returns a function that reports whether a process had processor time since the call before.
func hasRun(pid int) func() bool {
	// The number of another process's clock (clock_getcpuclockid(3), the kernel's CPUCLOCK_SCHED). It counts
	// nanoseconds of all its threads; /proc counts only hundredths of a second.
	clock := int32(^pid<<3 | 2)
	var last unix.Timespec
	return func() bool {
		now := last
		if unix.ClockGettime(clock, &now) != nil { // the process is gone: isDown reports that
			return false
		}
		ran := now != last
		last = now
		return ran
	}
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
