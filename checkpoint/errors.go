package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"millrace/checkpoint/disk"
)

// The classes of failure, for errors.Is. The message around them names the directory and the cure.
var (
	// ErrLocked: another process holds the directory.
	ErrLocked = errors.New("in use")
	// ErrNewerFormat: a newer program wrote the directory.
	ErrNewerFormat = errors.New("written by a newer version of millrace")
	// ErrOlderFormat: an older program wrote the directory, in a format that this one does not read.
	ErrOlderFormat = errors.New("written by an older version of millrace")
	// ErrCorrupt: the bytes read differ from the bytes written.
	ErrCorrupt = errors.New("damaged on disk")
	// ErrDiskFull: the file system has no room. The call wrote nothing, and the store stays usable.
	ErrDiskFull = errors.New("disk full")
	// ErrConflict: a step that is sealed already was committed with other content.
	ErrConflict = errors.New("step is already sealed with other content")
	// ErrNotCovered: a call asks for a record outside the journal, or would truncate a record that no snapshot covers.
	ErrNotCovered = errors.New("not covered by the journal or a snapshot")
	// ErrNotFound: the directory has no store; for Open, it has other files but no store.
	ErrNotFound = errors.New("no checkpoint store")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("checkpoint store is closed")
	// ErrReadOnly: a call would write to a store that OpenReadOnly opened.
	ErrReadOnly = errors.New("checkpoint store is open for reading only")
)

// The beginnings of errors about opening a store.
const (
	actOpen         = "open run directory"
	actOpenReadOnly = "open run directory for reading"
)

// The cures that errors name.
const (
	corruptCure = "restore the directory from a copy, " +
		"or start a new run directory from the trainer's newest checkpoint"
	notFoundCure = "name the directory of a run that was started before"
)

// corrupt returns an ErrCorrupt that names the damaged place in dir.
func corrupt(dir, where, what string) error {
	return fmt.Errorf("read %s in %s: %w: %s; %s", where, dir, ErrCorrupt, what, corruptCure)
}

func diskFull(dir string, cause error) error {
	return fmt.Errorf(
		"write to %s: %w (%v); free some space on that file system, everything acknowledged so far is kept", dir,
		ErrDiskFull, cause)
}

// classify turns an error of Pebble about dir into one of our classes.
func classify(act, dir string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrCorrupt), errors.Is(err, ErrDiskFull), errors.Is(err, ErrNotFound):
		return err
	case disk.IsFull(err):
		return diskFull(dir, err)
	case errors.Is(err, pebble.ErrDBDoesNotExist) && act == actOpen:
		return fmt.Errorf("%s %s: %w, but other files are there: name a new directory, or %s", act, dir, ErrNotFound,
			corruptCure)
	case errors.Is(err, pebble.ErrDBDoesNotExist), errors.Is(err, fs.ErrNotExist) && act == actOpenReadOnly:
		return fmt.Errorf("%s: %w in %s: %s", act, ErrNotFound, dir, notFoundCure)
	case strings.Contains(err.Error(), "unknown format major version"):
		return fmt.Errorf("%s %s: %w (%v): use the version that made it, or a newer one", act, dir, ErrNewerFormat, err)
	case pebble.IsCorruptionError(err):
		return fmt.Errorf("%s %s: %w: %v; %s", act, dir, ErrCorrupt, err, corruptCure)
	default:
		return fmt.Errorf("%s %s: %w", act, dir, err)
	}
}

// catch runs f and classifies its error. It turns a panic inside Pebble into an ErrCorrupt, because Pebble may panic on
// a damaged file.
func catch(act, dir string, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s %s: %w: %v; %s", act, dir, ErrCorrupt, p, corruptCure)
		}
	}()
	return classify(act, dir, f())
}
