package supervisor

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"millrace/internal/limits"
	"millrace/internal/seam"
)

// The time limits of a new `up` that finds children of a killed `up`. Such children hold the run directory's lock until
// they have left.
const (
	// orphanGrace is the time that they have to leave by themselves. They need [leaveGrace].
	orphanGrace = 2 * time.Second
	// killGrace is the time that they have to die. A process that survives it hangs in the kernel or is frozen from
	// outside.
	killGrace = 8 * time.Second
	// dyingGrace is the time for which a killed `up` may still look alive.
	dyingGrace = 300 * time.Millisecond
	pollEvery  = 10 * time.Millisecond
	// quietWait is the time after which a line reports the wait.
	quietWait = time.Second
)

// ErrInUse: another `millrace up` holds the run directory.
var ErrInUse = errors.New("run directory in use")

// inUseError is an ErrInUse that names the directory and its holder.
type inUseError struct{ dir, holder string }

func (e *inUseError) Error() string {
	return fmt.Sprintf("run directory %s is in use by another `millrace up`%s: "+
		"stop that one, or name another --run-dir", e.dir, e.holder)
}

func (e *inUseError) Is(target error) bool { return target == ErrInUse }

// leftoverError is an ErrInUse by processes that a kill does not end.
type leftoverError struct {
	dir  string
	pids []int
}

func (e *leftoverError) Error() string {
	if len(e.pids) == 0 {
		return fmt.Sprintf("run directory %s is locked by a process that is not visible here: "+
			"stop the process that uses it, or name another --run-dir", e.dir)
	}
	return fmt.Sprintf("run directory %s is held by processes of a killed `millrace up` that a kill does not end: %v: "+
		"thaw them if they are frozen, or name another --run-dir", e.dir, e.pids)
}

func (e *leftoverError) Is(target error) bool { return target == ErrInUse }

// lockDir creates and locks the run directory. The lock lasts while the file is open here or in a child.
func lockDir(runDir string, clock seam.Clock, say io.Writer) (*os.File, error) {
	if err := os.MkdirAll(runDir, 0o700); err != nil {
		return nil, fmt.Errorf("make run directory: %w", err)
	}
	if err := makeOurs(runDir); err != nil {
		return nil, err
	}
	dir, err := os.Open(runDir)
	if err != nil {
		return nil, fmt.Errorf("open run directory: %w", err)
	}
	if err := takeLock(dir, runDir, clock, say); err != nil {
		dir.Close()
		return nil, err
	}
	return dir, nil
}

// makeOurs makes a directory of this user accessible if its mode excludes its owner. For a directory of another user,
// the next step reports the error.
func makeOurs(runDir string) error {
	st, err := os.Stat(runDir)
	if err != nil || !st.IsDir() || st.Mode().Perm()&0o700 == 0o700 {
		return nil
	}
	if err := os.Chmod(runDir, st.Mode().Perm()|0o700); err != nil && !errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("open run directory: %w", err)
	}
	return nil
}

// takeLock waits for the lock while only orphans hold it, and kills orphans that do not leave.
func takeLock(dir *os.File, runDir string, clock seam.Clock, say io.Writer) error {
	begun := clock.Now()
	told, killed := false, false
	for {
		err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return nil
		}
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return limits.Lock("run directory "+runDir, err,
				"name a --run-dir on a file system with locks, for example on a local disk")
		}
		waited := clock.Now().Sub(begun)
		if pid, alive := holder(runDir); alive {
			if waited > dyingGrace {
				return &inUseError{dir: runDir, holder: fmt.Sprintf(" (pid %d)", pid)}
			}
			<-clock.After(pollEvery)
			continue
		}
		if waited > quietWait && !told {
			told = true
			fmt.Fprintf(say, "waiting for processes of a killed `millrace up` to leave %s: %v\n", runDir,
				orphans(runDir))
		}
		if waited > orphanGrace && !killed {
			killed = true
			for _, pid := range orphans(runDir) {
				fmt.Fprintf(say, "process %d of a killed `millrace up` does not leave; killing it\n", pid)
				_ = unix.Kill(pid, unix.SIGKILL) // after success, the lock is free
			}
		}
		if waited > orphanGrace+killGrace {
			return &leftoverError{dir: runDir, pids: orphans(runDir)}
		}
		<-clock.After(pollEvery)
	}
}

// holder returns the `up` that has the directory, and whether it is alive. An `up` that has not written its pid yet
// counts as dead until a later look. The pid of a dead `up` may be a zombie or belong to another process by now;
// neither has the directory open.
func holder(runDir string) (pid int, alive bool) {
	b, err := os.ReadFile(filepath.Join(RuntimeDir(runDir), pidName))
	if err != nil {
		return 0, false
	}
	pid, err = strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid <= 0 || errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
		return 0, false
	}
	open, known := hasOpen(pid, runDir)
	return pid, open || !known
}

// IsServed reports whether an `up` has the run directory, and lives.
func IsServed(runDir string) bool {
	_, alive := holder(runDir)
	return alive
}

// orphans returns the other processes that have the directory open and the command line of one of its roles.
func orphans(runDir string) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var out []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if args := strings.Split(string(line), "\x00"); err != nil || args[0] != argv0 ||
			!slices.Contains(args, runDir) {
			continue
		}
		if open, _ := hasOpen(pid, runDir); open {
			out = append(out, pid)
		}
	}
	return out
}

// hasOpen reports whether a process has the run directory itself open, like an `up` and its children. known is false if
// this user may not look at the process.
func hasOpen(pid int, runDir string) (open, known bool) {
	want, err := os.Stat(runDir)
	if err != nil {
		return false, false
	}
	at := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	entries, err := os.ReadDir(at)
	if err != nil {
		return false, errors.Is(err, os.ErrNotExist)
	}
	for _, e := range entries {
		if st, err := os.Stat(filepath.Join(at, e.Name())); err == nil && os.SameFile(st, want) {
			return true, true
		}
	}
	return false, true
}
