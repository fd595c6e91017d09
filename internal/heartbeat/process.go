package heartbeat

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// process reads the kernel's records of one process (proc(5)). The open files are bound to that process, not to its
// number.
type process struct {
	first  io.ReaderAt // stat of the first thread
	status io.ReaderAt // of the process
	root   *os.Root    // /proc/<pid>
	files  []io.Closer
}

// openProcess opens the records of a process below the mount of a proc file system.
func openProcess(mount string, pid int) (*process, error) {
	root, err := os.OpenRoot(fmt.Sprintf("%s/%d", mount, pid))
	if err != nil {
		return nil, err
	}
	first, err := root.Open(fmt.Sprintf("task/%d/stat", pid))
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	status, err := root.Open("status")
	if err != nil {
		return nil, errors.Join(err, first.Close(), root.Close())
	}
	return &process{first: first, status: status, root: root, files: []io.Closer{first, status, root}}, nil
}

func (p *process) close() (err error) {
	for _, f := range p.files {
		err = errors.Join(err, f.Close())
	}
	return err
}

// exiting is the kernel's PF_EXITING among a thread's flags. A process with much memory stays in this state for long.
const exiting = 0x4

// isDown reads the state of the first thread.
func (p *process) isDown() bool {
	var buf [512]byte
	n, err := p.first.ReadAt(buf[:], 0)
	if err != nil && err != io.EOF {
		return errors.Is(err, unix.ESRCH)
	}
	fields := statFields(buf[:n])
	if len(fields) < 7 {
		return false
	}
	flags, err := strconv.ParseUint(string(fields[6]), 10, 64)
	return bytes.ContainsAny(fields[0], "TZX") || err == nil && flags&exiting != 0
}

// statFields returns the fields of a stat file from the state on.
func statFields(stat []byte) [][]byte {
	_, rest, _ := bytes.Cut(stat, []byte(") ")) // after the name; ours holds no bracket
	return bytes.Fields(rest)
}

// threads reads the state of every thread, and the processor time that each had and waited for.
func (p *process) threads() Threads {
	t := Threads{Doomed: p.isDoomed()}
	dir, err := p.root.Open("task")
	if err != nil {
		return t
	}
	names, _ := dir.Readdirnames(-1)
	_ = dir.Close()
	for _, name := range names { // a thread that has just ended cannot be read, and adds nothing
		if fields := statFields(p.read("task/" + name + "/stat")); len(fields) > 0 {
			t.Runnable = t.Runnable || fields[0][0] == 'R'
			t.Blocked = t.Blocked || fields[0][0] == 'D'
			t.Doomed = t.Doomed || fields[0][0] == 'T'
		}
		if times := bytes.Fields(p.read("task/" + name + "/schedstat")); len(times) >= 2 {
			t.Ran += nanoseconds(times[0])
			t.Waited += nanoseconds(times[1])
		}
	}
	return t
}

// isDoomed reports whether a signal that kills or stops the process is pending. A process needs a processor to obey.
func (p *process) isDoomed() bool {
	var buf [4096]byte
	n, _ := p.status.ReadAt(buf[:], 0)
	for _, name := range []string{"\nSigPnd:\t", "\nShdPnd:\t"} {
		_, rest, _ := bytes.Cut(buf[:n], []byte(name))
		line, _, _ := bytes.Cut(rest, []byte("\n"))
		pending, err := strconv.ParseUint(string(line), 16, 64)
		if err == nil && pending&(1<<(unix.SIGKILL-1)|1<<(unix.SIGSTOP-1)) != 0 {
			return true
		}
	}
	return false
}

// read returns the beginning of a small file, or nothing.
func (p *process) read(name string) []byte {
	f, err := p.root.Open(name)
	if err != nil {
		return nil
	}
	defer f.Close()
	var buf [512]byte
	n, _ := f.Read(buf[:])
	return buf[:n]
}

func nanoseconds(text []byte) time.Duration {
	n, _ := strconv.ParseInt(string(text), 10, 64)
	return time.Duration(n)
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
