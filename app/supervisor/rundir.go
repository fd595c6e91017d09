package supervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"millrace"
)

// Names inside a run directory.
const (
	runtimeName = "run" // RUNDIR/run: the files that exist only while `up` runs
	streamsName = "streams"
	rolesName   = "roles.json"
	placedName  = "placed.json"
	pidName     = "up.pid"
	reasonName  = "reason"
)

// RuntimeDir returns the directory, mode 0700, for sockets and other files that must not outlive `up`.
func RuntimeDir(runDir string) string { return filepath.Join(runDir, runtimeName) }

// StreamDir returns the directory of a stream of a run. That of a further stream is laid out as the run directory of
// the stream alone; the stream `train` has the run directory itself.
func StreamDir(runDir, stream string) string {
	if stream == string(millrace.Train) {
		return runDir
	}
	return filepath.Join(runDir, streamsName, stream)
}

// HomeOf returns the run directory of a directory that StreamDir returned for a stream that is served now. Another
// directory is its own.
func HomeOf(dir string) string {
	above, folder := filepath.Split(filepath.Dir(filepath.Clean(dir)))
	if _, err := os.Stat(RuntimeDir(dir)); err == nil && folder == streamsName {
		return filepath.Clean(above)
	}
	return dir
}

// StreamOf returns the stream of a directory that StreamDir returned for a stream that is served now.
func StreamOf(dir string) string {
	if HomeOf(dir) == dir {
		return string(millrace.Train)
	}
	return filepath.Base(dir)
}

// MakeStream creates the directories of a further stream. The runtime directory must exist.
func MakeStream(runDir, stream string) error {
	dir := StreamDir(runDir, stream)
	// Trainers of other users find the sockets, if they reach the run directory.
	if err := errors.Join(os.MkdirAll(dir, 0o711), os.MkdirAll(RuntimeDir(dir), 0o700)); err != nil {
		return fmt.Errorf("make the directory of stream %s: %w", stream, err)
	}
	return nil
}

// Streams returns the names of the further streams that the `up` of a run directory serves, sorted.
func Streams(runDir string) []string {
	entries, _ := os.ReadDir(filepath.Join(runDir, streamsName)) // no directory: no further streams
	var out []string
	for _, e := range entries {
		if _, err := os.Stat(RuntimeDir(StreamDir(runDir, e.Name()))); err == nil {
			out = append(out, e.Name())
		}
	}
	return out
}

// makeRuntime creates an empty runtime directory, and removes the files of a killed `up`. The caller holds the lock.
func makeRuntime(runDir string) error {
	if err := cleanRuntime(runDir); err != nil {
		return err
	}
	if err := os.Mkdir(RuntimeDir(runDir), 0o700); err != nil {
		return fmt.Errorf("make runtime directory: %w", err)
	}
	return replaceFile(filepath.Join(RuntimeDir(runDir), pidName), []byte(strconv.Itoa(os.Getpid())+"\n"))
}

// cleanRuntime removes RUNDIR/run and the ranks' sockets, also those of the further streams. The caller holds the lock.
func cleanRuntime(runDir string) error {
	for _, stream := range Streams(runDir) {
		if err := cleanDir(StreamDir(runDir, stream)); err != nil {
			return err
		}
	}
	return cleanDir(runDir)
}

// cleanDir removes the runtime files of one stream.
func cleanDir(runDir string) error {
	// The second pattern matches a socket that is bound but not renamed yet.
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

// escapeGlob returns a pattern that matches only this name.
func escapeGlob(dir string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(dir)
}

// replaceFile writes a small file. A reader sees the old or the new bytes, never a part.
func replaceFile(path string, b []byte) error {
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// page is the unit of the size of exchangeFile's files, in bytes.
const page = 4096

// exchangeFile is replaceFile for a file that is written often and must be writable on a full disk. Two files take
// turns, and neither releases its blocks. Spaces fill the rest of the last block.
func exchangeFile(path string, b []byte) error {
	spare := path + ".tmp"
	f, err := os.OpenFile(spare, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	padded := make([]byte, (len(b)/page+1)*page)
	for i := copy(padded, b); i < len(padded)-1; i++ {
		padded[i] = ' '
	}
	padded[len(padded)-1] = '\n'
	_, err = f.Write(padded)
	if err := errors.Join(err, f.Truncate(int64(len(padded))), f.Close()); err != nil {
		return err
	}
	err = unix.Renameat2(unix.AT_FDCWD, spare, unix.AT_FDCWD, path, unix.RENAME_EXCHANGE)
	// The error of the first time, or of an unsupported file system.
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		err = os.Rename(spare, path)
	}
	return err
}

// Reason returns the reason for the run's end, which a role sends to its clients. It is empty if only this role is
// asked to leave, and if the run is finished.
func Reason(runDir string) string {
	b, err := os.ReadFile(filepath.Join(RuntimeDir(runDir), reasonName))
	if err != nil {
		return ""
	}
	return string(b)
}

// Placed is the supervisor's answer to a request for other numbers of processes.
type Placed struct {
	ID      string `json:"id"`                // of the request
	Refused string `json:"refused,omitempty"` // why the earlier goal holds; "": the request's goal does
}

// ReadPlaced returns the newest answer of the supervisor of a run directory, the zero Placed before there is one.
func ReadPlaced(runDir string) (Placed, error) {
	var p Placed
	b, err := os.ReadFile(filepath.Join(RuntimeDir(runDir), placedName))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return p, nil
	case err != nil:
		return p, fmt.Errorf("read the supervisor's answer: %w", err)
	}
	if err := json.Unmarshal(b, &p); err != nil {
		return p, fmt.Errorf("read the supervisor's answer in %s: %w", runDir, err)
	}
	return p, nil
}

// ReadRoles returns the roles that the supervisor of a run directory wrote last. The error is fs.ErrNotExist if no `up`
// runs.
func ReadRoles(runDir string) ([]Role, error) {
	b, err := os.ReadFile(filepath.Join(RuntimeDir(runDir), rolesName))
	if err != nil {
		return nil, fmt.Errorf("read roles: %w", err)
	}
	var roles []Role
	if err := json.Unmarshal(b, &roles); err != nil {
		return nil, fmt.Errorf("read roles of %s: %w", runDir, err)
	}
	return roles, nil
}
