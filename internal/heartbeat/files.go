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

// Pages makes and opens pages: Files in a run, Memory in a simulation.
type Pages interface {
	// Create makes this process's page under a path that ends in -<pid>.beat.
	Create(path string) (*Page, error)
	// Open watches another's page.
	Open(path string) (*Monitor, error)
}

// Files are the pages of the processes of this host.
type Files struct{}

var _ Pages = Files{}

// Path is the name of the page of the life of a slot, in a directory of the run.
func Path(dir, name string, pid int) string {
	return filepath.Join(dir, fmt.Sprintf("%s-%d%s", name, pid, suffix))
}

const suffix = ".beat"

// owner is the process that a path names.
func owner(path string) (int, error) {
	base, ok := strings.CutSuffix(filepath.Base(path), suffix)
	pid, err := strconv.Atoi(base[strings.LastIndexByte(base, '-')+1:])
	if !ok || err != nil || pid <= 0 {
		return 0, fmt.Errorf("heartbeat page %s: want a name like loader-0-123%s", path, suffix)
	}
	return pid, nil
}

// Create makes the page of this process. Its name appears when it is whole; one that is in the way is replaced.
func (Files) Create(path string) (*Page, error) {
	pid, err := owner(path)
	if err != nil {
		return nil, fmt.Errorf("create %w", err)
	}
	if pid != os.Getpid() {
		return nil, fmt.Errorf("create heartbeat page %s: this is process %d", path, os.Getpid())
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
	p := &Page{page: (*page)(unsafe.Pointer(&mapped[0])), path: path, pause: sleep, alone: thread}
	p.page.init(pid)
	unlink := func() error {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	}
	p.close = func() error { return errors.Join(unlink(), unix.Munmap(mapped), file.Close()) }
	if err := errors.Join(unlink(), os.Symlink(fmt.Sprintf("/proc/%d/fd/%d", pid, fd), path)); err != nil {
		return nil, errors.Join(fmt.Errorf("create heartbeat page: %w", err), p.close())
	}
	return p, nil
}

// Open maps the page of a process of this host. That it is gone, no such page or another's is an error; the process is dead then.
func (Files) Open(path string) (*Monitor, error) {
	pid, err := owner(path)
	if err != nil {
		return nil, fmt.Errorf("open %w", err)
	}
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // should the name lead to a pipe
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
	m := &Monitor{page: (*page)(unsafe.Pointer(&mapped[0])), pid: pid, close: func() error { return unix.Munmap(mapped) }}
	if err := m.page.check(pid); err != nil {
		return nil, errors.Join(fmt.Errorf("open heartbeat page %s: %w", path, err), m.close())
	}
	state, err := os.Open(fmt.Sprintf("/proc/%d/task/%d/stat", pid, pid))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open heartbeat page %s: %w", path, err), m.close())
	}
	m.down = func() bool { return down(state) }
	m.ran = runs(pid)
	m.close = func() error { return errors.Join(unix.Munmap(mapped), state.Close()) }
	return m, nil
}

// exiting is the kernel's PF_EXITING among a thread's flags: it gives back what it holds, which takes long where that is much memory.
const exiting = 0x4

// down reads what the kernel says of a process's first thread (proc(5), stat). The open file is bound to that process, not to its number.
func down(state io.ReaderAt) bool {
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

// runs tells, call by call, whether a process had processor time since the call before.
func runs(pid int) func() bool {
	// The number of another process's clock (clock_getcpuclockid(3), the kernel's CPUCLOCK_SCHED): nanoseconds of all its threads,
	// where /proc counts hundredths of a second.
	clock := int32(^pid<<3 | 2)
	var last unix.Timespec
	return func() bool {
		now := last
		if unix.ClockGettime(clock, &now) != nil { // it is gone; that is said by down
			return false
		}
		ran := now != last
		last = now
		return ran
	}
}

// sleep keeps the thread that it is called on: one that waited for a timer of the runtime would be woken by whichever thread has time.
func sleep(_ context.Context, d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&ts, nil) // a signal ends it early: a beat too many
}

// thread keeps an operating system's thread for the beats, one that is woken before others.
func thread() (done func()) {
	runtime.LockOSThread()
	prefer()
	return runtime.UnlockOSThread
}

// prefer asks the kernel to wake this thread before others. It is refused to most users; then a busy host shows as late beats, for which
// the judge makes allowance.
func prefer() { _ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), -10) }
