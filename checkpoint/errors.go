package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
)

// The classes of failure a caller may want to tell apart with errors.Is. The message around them names the directory and the cure.
var (
	// ErrLocked: another process holds the directory.
	ErrLocked = errors.New("in use")
	// ErrNewerFormat: a newer program wrote the directory.
	ErrNewerFormat = errors.New("written by a newer version of millrace")
	// ErrOlderFormat: an older program wrote the directory, in a format that this one does not read.
	ErrOlderFormat = errors.New("written by an older version of millrace")
	// ErrCorrupt: what was read is not what was written.
	ErrCorrupt = errors.New("damaged on disk")
	// ErrDiskFull: the file system has no room. Nothing was written, and the store stays usable.
	ErrDiskFull = errors.New("disk full")
	// ErrConflict: a step that is sealed already was committed with other content.
	ErrConflict = errors.New("step is already sealed with other content")
	// ErrNotCovered: a record is asked for that was truncated, or would be truncated without a snapshot that covers it.
	ErrNotCovered = errors.New("not covered by the journal or a snapshot")
	// ErrNotFound: there is no store in the directory; for Open, none among other files.
	ErrNotFound = errors.New("no checkpoint store")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("checkpoint store is closed")
	// ErrReadOnly: a write to a store opened with OpenReadOnly.
	ErrReadOnly = errors.New("checkpoint store is open for reading only")
)

const corruptCure = "restore the directory from a copy, or start a new run directory from the trainer's newest checkpoint"

// corrupt says what in dir is damaged.
func corrupt(dir, where, what string) error {
	return fmt.Errorf("read %s in %s: %w: %s; %s", where, dir, ErrCorrupt, what, corruptCure)
}

// outOfRoom tells a full file system or a used-up quota.
func outOfRoom(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

func diskFull(dir string, cause error) error {
	return fmt.Errorf("write to %s: %w (%v); free some space on that file system, everything acknowledged so far is kept", dir, ErrDiskFull, cause)
}

// classify turns what Pebble says about dir into one of our classes.
func classify(act, dir string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrCorrupt), errors.Is(err, ErrDiskFull), errors.Is(err, ErrNotFound):
		return err
	case outOfRoom(err):
		return diskFull(dir, err)
	case errors.Is(err, pebble.ErrDBDoesNotExist) && act == actOpen:
		return fmt.Errorf("%s %s: %w, but other files are there: name a new directory, or %s", act, dir, ErrNotFound, corruptCure)
	case errors.Is(err, pebble.ErrDBDoesNotExist), errors.Is(err, fs.ErrNotExist) && act == actOpenReadOnly:
		return fmt.Errorf("%s: %w in %s: name the directory of a run that was started before", act, ErrNotFound, dir)
	case strings.Contains(err.Error(), "unknown format major version"):
		return fmt.Errorf("%s %s: %w (%v): use the version that made it, or a newer one", act, dir, ErrNewerFormat, err)
	case pebble.IsCorruptionError(err):
		return fmt.Errorf("%s %s: %w: %v; %s", act, dir, ErrCorrupt, err, corruptCure)
	default:
		return fmt.Errorf("%s %s: %w", act, dir, err)
	}
}

// fence runs f and turns a panic inside Pebble into an ErrCorrupt: a damaged file must not end in a stack trace.
func fence(act, dir string, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s %s: %w: %v; %s", act, dir, ErrCorrupt, p, corruptCure)
		}
	}()
	return classify(act, dir, f())
}

// sink is the Logger and the event listener that Pebble gets. Pebble treats a failed write or fsync of its log or manifest as the end, by design; so do
// we, in one line. It must not call back into the store: Pebble calls it with its own locks held.
type sink struct {
	dir    string
	logger *slog.Logger
	die    func(error)
}

var _ pebble.LoggerAndTracer = (*sink)(nil)

func (s *sink) Infof(format string, args ...any) { s.logger.Debug(oneLine(format, args...)) }

func (s *sink) Errorf(format string, args ...any) {
	s.logger.Error(oneLine(format, args...), "dir", s.dir)
}

// Fatalf is Pebble's way to say that it cannot go on. It does not return.
func (s *sink) Fatalf(format string, args ...any) {
	for _, a := range args {
		if err, ok := a.(error); ok {
			s.end(err)
		}
	}
	s.end(errors.New(oneLine(format, args...)))
}

func (s *sink) Eventf(context.Context, string, ...any)    {}
func (s *sink) IsTracingEnabled(ctx context.Context) bool { return false }

// end reports why the store cannot go on and ends the process.
func (s *sink) end(err error) {
	switch {
	case outOfRoom(err):
		s.die(fmt.Errorf("write to %s: %w (%s); free some space on that file system and start again, everything acknowledged so far is kept", s.dir, ErrDiskFull, oneLine("%v", err)))
	case pebble.IsCorruptionError(err):
		s.die(fmt.Errorf("read %s: %w: %s; %s", s.dir, ErrCorrupt, oneLine("%v", err), corruptCure))
	default:
		s.die(fmt.Errorf("write to %s: %s; stopped, since after a failed write nobody knows what the disk holds: check the disk and start again, everything acknowledged so far is kept", s.dir, oneLine("%v", err)))
	}
}

// emptyFlush is how Pebble reports, as an error, a flush that had nothing left to write.
const emptyFlush = "pebble: empty table"

// listener makes failed background work end the process as well: Pebble would try again at once, for ever.
func (s *sink) listener() *pebble.EventListener {
	return &pebble.EventListener{
		BackgroundError: func(err error) {
			s.logger.Error("checkpoint: background write failed", "dir", s.dir, "err", oneLine("%v", err))
		},
		// Damage found by a read is returned to the reader, which knows what it asked for.
		DataCorruption: func(info pebble.DataCorruptionInfo) {
			s.logger.Error("checkpoint: damaged file", "dir", s.dir, "path", info.Path, "err", oneLine("%v", info.Details))
		},
		FlushEnd: func(info pebble.FlushInfo) {
			if info.Err != nil && info.Err.Error() != emptyFlush {
				s.end(info.Err)
			}
		},
		CompactionEnd: func(info pebble.CompactionInfo) {
			if info.Err != nil && !errors.Is(info.Err, pebble.ErrCancelledCompaction) {
				s.end(info.Err)
			}
		},
	}
}

func oneLine(format string, args ...any) string {
	return strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " ")
}
