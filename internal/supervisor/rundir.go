package supervisor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"millrace/internal/seam"
)

// Names inside a run directory.
const (
	runtimeName = "run" // RUNDIR/run: everything that lives only while `up` does
	rolesName   = "roles.json"
	pidName     = "up.pid"
	reasonName  = "failed"
)

// orphanGrace is how long a new `up` waits for the orphans of a killed one to let go of the run directory; they leave within
// [leaveGrace].
const orphanGrace = 5 * time.Second

// RuntimeDir is the directory, mode 0700, for sockets and other files that must not outlive `up`.
func RuntimeDir(runDir string) string { return filepath.Join(runDir, runtimeName) }

// lockDir makes and locks the run directory. The lock lives as long as the file is open here or in any child.
func lockDir(runDir string, clock seam.Clock) (*os.File, error) {
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
	for patience := clock.Now().Add(orphanGrace); ; {
		err = unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return dir, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			dir.Close()
			return nil, fmt.Errorf("lock run directory %s: %w", runDir, err)
		}
		pid, alive := holder(runDir)
		if alive || clock.Now().After(patience) {
			dir.Close()
			return nil, &inUseError{dir: runDir, holder: pid}
		}
		<-clock.After(10 * time.Millisecond)
	}
}

// makeOurs gives us a directory of ours whose mode keeps us out. Of somebody else's the next step says what is wrong.
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

// holder names the `up` that has the directory. A dead one has orphans that are about to leave; one that has written no pid yet
// counts as dead, and is alive at a later look.
func holder(runDir string) (name string, alive bool) {
	b, err := os.ReadFile(filepath.Join(RuntimeDir(runDir), pidName))
	if err != nil {
		return "", false
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid <= 0 {
		return "", false
	}
	return fmt.Sprintf(" (pid %d)", pid), !errors.Is(unix.Kill(pid, 0), unix.ESRCH)
}

// makeRuntime replaces what a killed `up` left by an empty runtime directory. The caller holds the lock.
func makeRuntime(runDir string) error {
	if err := cleanRuntime(runDir); err != nil {
		return err
	}
	if err := os.Mkdir(RuntimeDir(runDir), 0o700); err != nil {
		return fmt.Errorf("make runtime directory: %w", err)
	}
	return replaceFile(filepath.Join(RuntimeDir(runDir), pidName), []byte(strconv.Itoa(os.Getpid())+"\n"))
}

// cleanRuntime removes RUNDIR/run and the ranks' sockets. The caller holds the lock.
func cleanRuntime(runDir string) error {
	// The second pattern is a socket between its binding and its renaming into place.
	for _, pattern := range []string{"rank-*.sock", ".rank-*.sock.*"} {
		sockets, err := filepath.Glob(filepath.Join(escapeGlob(runDir), pattern))
		if err != nil {
			return fmt.Errorf("clean run directory: %w", err)
		}
		for _, s := range sockets {
			if err := os.Remove(s); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("clean run directory: %w", err)
			}
		}
	}
	if err := os.RemoveAll(RuntimeDir(runDir)); err != nil {
		return fmt.Errorf("clean run directory: %w", err)
	}
	return nil
}

// escapeGlob makes a directory's name match itself.
func escapeGlob(dir string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(dir)
}

// replaceFile writes a small file so that a reader sees the old or the new bytes, never a part.
func replaceFile(path string, b []byte) error {
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// Reason is why the run is being stopped, for a role that has been asked to leave and has somebody to tell; "" where it has not
// failed.
func Reason(runDir string) string {
	b, err := os.ReadFile(filepath.Join(RuntimeDir(runDir), reasonName))
	if err != nil {
		return ""
	}
	return string(b)
}
