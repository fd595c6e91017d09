package rundir

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"millrace/app/exit"
	"millrace/checkpoint"
)

// LockWait bounds the wait for another command that reads the journal of a stopped run.
const LockWait = 10 * time.Second

// OpenJournal opens the journal of a stopped run, after a wait for other commands that read it, and returns the
// journal's directory. dir is a run directory or the journal's own directory. The caller closes the store.
func OpenJournal(
	dir string, cfg checkpoint.Config, open func(checkpoint.Config) (*checkpoint.Store, error),
) (store *checkpoint.Store, at string, err error) {
	if err := Check(dir); err != nil {
		return nil, "", err
	}
	at = Journal(dir)
	if _, err := os.Stat(filepath.Join(dir, "CURRENT")); err == nil || isStore(dir) {
		at = dir
	} else if !isDir(at) {
		return nil, "", exit.Failuref(
			"%s is no run directory: it has no journal; name the --run-dir of a `millrace up`", dir)
	}
	cfg.Dir = at
	if _, running, err := Roles(dir); err == nil && !running {
		cfg.LockWait = LockWait
	}
	store, err = open(cfg)
	if errors.Is(err, checkpoint.ErrLocked) {
		return nil, "", exit.Failuref(
			"the journal of %s is in use: stop the run first, or ask it with `millrace status %s`", dir, dir)
	}
	if err != nil {
		return nil, "", exit.Failure(err)
	}
	return store, at, nil
}

// isStore reports whether a directory holds the store's own files.
func isStore(dir string) bool {
	names, err := filepath.Glob(filepath.Join(dir, "MANIFEST-*"))
	return err == nil && len(names) > 0
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}
