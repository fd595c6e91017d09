// Package rundir reads the directory of a run: its paths, its journal, its processes, and its orchestrator's answers.
package rundir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"millrace/app/exit"
	"millrace/app/supervisor"
)

// Check returns an error of wrong usage if a path names no directory.
func Check(dir string) error {
	st, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return exit.Usagef("open run directory: %s: no such directory: name the DIR of a `millrace up`", dir)
	case err == nil && !st.IsDir():
		return exit.Usagef("open run directory: %s is a file: name the DIR of a `millrace up`", dir)
	case err != nil:
		return exit.Failuref("open run directory: %v", err)
	}
	return nil
}

// Socket returns the address of a role of this host.
func Socket(dir, name string) string { return filepath.Join(supervisor.RuntimeDir(dir), name+".sock") }

// ConfigFile returns the path of the resolved configuration, which up writes and every role reads.
func ConfigFile(dir string) string { return filepath.Join(supervisor.RuntimeDir(dir), "config.json") }

// OutcomeFile returns the path of the file with the failure of the last `up`. The file is absent while an `up` runs,
// and after an `up` that ended well.
func OutcomeFile(dir string) string { return filepath.Join(dir, "outcome.json") }

// Journal returns the directory of the journal.
func Journal(dir string) string { return filepath.Join(dir, "journal") }

// Roles returns the processes of the `up` that serves a run directory, or the directory of a stream. running is false
// if no `up` does.
func Roles(dir string) (roles []supervisor.Role, running bool, err error) {
	roles, err = supervisor.ReadRoles(supervisor.HomeOf(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	return roles, err == nil, err
}
