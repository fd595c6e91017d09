package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"millrace/checkpoint"
	"millrace/internal/app/supervisor"
)

// openJournal opens the journal of a run directory, or a journal's own directory, for reading.
func openJournal(dir string) (*checkpoint.Store, error) {
	store, _, err := openJournalAs(dir, checkpoint.OpenReadOnly)
	return store, err
}

// openJournalAs opens the journal of a run directory, or a journal's own directory, and names the latter.
func openJournalAs(dir string, open func(checkpoint.Config) (*checkpoint.Store, error)) (store *checkpoint.Store, at string, err error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, "", &failure{fmt.Sprintf("open run directory: %v", err)}
	}
	at = journalDir(dir)
	if _, err := os.Stat(filepath.Join(dir, "CURRENT")); err == nil || isStore(dir) {
		at = dir
	} else if !isDir(at) {
		return nil, "", &failure{fmt.Sprintf("%s is no run directory: it has no journal; name the --run-dir of a `millrace up`", dir)}
	}
	store, err = open(checkpoint.Config{Dir: at, CreatedBy: programVersion(), Logger: newLogger("journal")})
	if errors.Is(err, checkpoint.ErrLocked) {
		return nil, "", &failure{fmt.Sprintf("the journal of %s is in use: the run goes on; stop it first, or ask it with `millrace status %s`", dir, dir)}
	}
	if err != nil {
		return nil, "", &failure{err.Error()}
	}
	return store, at, nil
}

// isStore tells whether a directory holds a store's own files rather than a run.
func isStore(dir string) bool {
	names, err := filepath.Glob(filepath.Join(dir, "MANIFEST-*"))
	return err == nil && len(names) > 0
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

// runs tells whether an `up` serves a run directory.
func runs(dir string) ([]supervisor.Role, bool, error) {
	roles, err := supervisor.ReadRoles(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	return roles, err == nil, err
}

func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
