// Package limits names the limit that a process has reached when the kernel refuses something, and the cure.
package limits

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Explain adds to an error of the kernel the limit behind it and its cure, if it is an error of a limit.
func Explain(err error) error {
	var errno syscall.Errno
	var known *explained
	if err == nil || errors.As(err, &known) || !errors.As(err, &errno) {
		return err
	}
	if text := Host().of(errno); text != "" {
		return &explained{err, text}
	}
	return err
}

// ExplainStart is Explain for a process or thread that cannot be started. There, EAGAIN is an error of a limit, too.
func ExplainStart(err error) error {
	if errors.Is(err, unix.EAGAIN) {
		return &explained{err, Host().processes()}
	}
	return Explain(err)
}

// explained is an error with its limit.
type explained struct {
	error
	limit string
}

// Error has the error first, then the limit and the cure.
func (e *explained) Error() string { return e.error.Error() + ": " + e.limit }

// Unwrap returns the error.
func (e *explained) Unwrap() error { return e.error }

// System is the place of the limits: the kernel's files below a directory, and the limits of a process.
type System struct {
	Root  string // of /proc and /sys
	Limit func(resource int) (soft uint64, ok bool)
}

// Host returns the limits of this process.
func Host() System {
	return System{Root: "/", Limit: func(resource int) (uint64, bool) {
		var limit unix.Rlimit
		err := unix.Getrlimit(resource, &limit)
		return limit.Cur, err == nil && limit.Cur != unix.RLIM_INFINITY
	}}
}

// of returns the limit behind an error and its cure, "" if it is no error of a limit.
func (s System) of(errno syscall.Errno) string {
	switch errno {
	case unix.EMFILE:
		n, _ := s.Limit(unix.RLIMIT_NOFILE)
		return fmt.Sprintf("the process may have %d descriptors (ulimit -n): raise `ulimit -n`, or set a lower "+
			"limits.open_files", n)
	case unix.ENFILE:
		return "the host has no descriptor left: raise the sysctl fs.file-max, or end other processes"
	case unix.EFBIG:
		if n, ok := s.Limit(unix.RLIMIT_FSIZE); ok {
			return fmt.Sprintf("the process may write files of %d bytes (ulimit -f): raise `ulimit -f`", n)
		}
	case unix.ENOLCK:
		return noLocks
	case unix.ENOMEM:
		return s.memory()
	}
	return ""
}

// memory returns the limits of memory that hold, "" if none does.
func (s System) memory() string {
	var found []string
	if n, ok := s.Limit(unix.RLIMIT_AS); ok {
		found = append(found, fmt.Sprintf("the process may have %d MiB of addresses (ulimit -v)", n>>20))
	}
	if n, ok := s.number("memory", "memory.max", "memory.limit_in_bytes"); ok {
		found = append(found, fmt.Sprintf("the cgroup may have %d MiB of memory", n>>20))
	}
	if found == nil {
		return ""
	}
	return strings.Join(found, ", ") + ": raise it, or set a lower limits.loader_memory"
}

// processes returns the limits of processes and threads that hold.
func (s System) processes() string {
	var found []string
	if n, ok := s.Limit(unix.RLIMIT_NPROC); ok {
		found = append(found, fmt.Sprintf("the user may have %d processes and threads (ulimit -u)", n))
	}
	if n, ok := s.number("pids", "pids.max", "pids.max"); ok {
		found = append(found, fmt.Sprintf("the cgroup may have %d (pids.max)", n))
	}
	if found == nil {
		return "the host has no room for a process or thread: end others, or raise the sysctl kernel.threads-max"
	}
	return strings.Join(found, ", ") + ": raise the limit, or end other processes"
}

// unlimited is the least number that version 1 of cgroups writes for no limit.
const unlimited = 1 << 60

// number returns a limit of the process's cgroup, false if there is none.
func (s System) number(controller, two, one string) (int64, bool) {
	for _, path := range s.cgroups(controller) {
		name := two
		if path.isOne {
			name = one
		}
		b, err := os.ReadFile(filepath.Join(path.dir, name))
		if err != nil {
			continue
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil && n < unlimited {
			return n, true
		}
	}
	return 0, false
}

// cgroup is a directory of the process's cgroup.
type cgroup struct {
	dir   string
	isOne bool // of version 1
}

// cgroups returns the directories in which limits of a controller may be: the process's own and those above it.
func (s System) cgroups(controller string) (out []cgroup) {
	b, err := os.ReadFile(filepath.Join(s.Root, "proc/self/cgroup"))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(b)) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) != 3 {
			continue
		}
		mount := filepath.Join(s.Root, "sys/fs/cgroup")
		isOne := part[1] != ""
		if isOne {
			mount = filepath.Join(mount, controller)
		}
		if isOne && !strings.Contains(","+part[1]+",", ","+controller+",") {
			continue
		}
		for at := filepath.Clean("/" + part[2]); ; at = filepath.Dir(at) {
			out = append(out, cgroup{filepath.Join(mount, at), isOne})
			if at == "/" {
				break
			}
		}
	}
	return out
}

// Kills returns the number of processes of this cgroup that the kernel has killed for memory, 0 if it is unknown.
func (s System) Kills() (n int64) {
	for _, path := range s.cgroups("memory") {
		name := "memory.events"
		if path.isOne {
			name = "memory.oom_control"
		}
		b, err := os.ReadFile(filepath.Join(path.dir, name))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			if count, ok := strings.CutPrefix(line, "oom_kill "); ok {
				n, _ = strconv.ParseInt(strings.TrimSpace(count), 10, 64)
				return n
			}
		}
	}
	return 0
}

// OfDeath returns the limit that ended a process, "" if none did. last is the last line of its output. wasKilled: the
// kernel has killed a process of this cgroup for memory meanwhile.
func (s System) OfDeath(signal syscall.Signal, last string, wasKilled bool) string {
	switch {
	case signal == unix.SIGKILL && wasKilled:
		text := "killed by the kernel for memory"
		if limit := s.memory(); limit != "" {
			text += ": " + limit
		}
		return text
	case signal == unix.SIGXFSZ, strings.HasPrefix(last, "SIGXFSZ"):
		return s.of(unix.EFBIG)
	case strings.Contains(last, "newosproc"), strings.Contains(last, "failed to create new OS thread"):
		return s.processes()
	case strings.Contains(last, "cannot allocate memory"), strings.Contains(last, "out of memory"):
		return s.memory()
	}
	return ""
}
