package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"millrace/checkpoint/disk"
)

// sink is Pebble's logger and event listener. For Pebble a failed write or fsync of its log or manifest is fatal. sink
// reports the failure in one line and ends the process. It must not call the store, because Pebble holds its own locks
// meanwhile.
type sink struct {
	dir    string
	logger *slog.Logger
	fatal  func(error) // ends the process
}

var _ pebble.LoggerAndTracer = (*sink)(nil)

func (s *sink) Infof(format string, args ...any) { s.logger.Debug(oneLine(format, args...)) }

func (s *sink) Errorf(format string, args ...any) {
	s.logger.Error(oneLine(format, args...), "dir", s.dir)
}

// Fatalf is called when Pebble cannot continue. It does not return.
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

// end reports why the store cannot continue, and ends the process.
func (s *sink) end(err error) {
	switch {
	case disk.IsFull(err):
		s.fatal(fmt.Errorf("write to %s: %w (%s); free some space on that file system and start again, "+
			"everything acknowledged so far is kept", s.dir, ErrDiskFull, oneLine("%v", err)))
	case pebble.IsCorruptionError(err):
		s.fatal(fmt.Errorf("read %s: %w: %s; %s", s.dir, ErrCorrupt, oneLine("%v", err), corruptCure))
	default:
		s.fatal(fmt.Errorf("write to %s: %s; stopped, because the content of the disk is unknown after "+
			"a failed write: check the disk and start again, everything acknowledged so far is kept",
			s.dir, oneLine("%v", err)))
	}
}

// emptyFlush is the error with which Pebble reports a flush that had nothing to write.
const emptyFlush = "pebble: empty table"

// listener makes failed background work end the process as well. Pebble would retry it at once, without limit.
func (s *sink) listener() *pebble.EventListener {
	return &pebble.EventListener{
		BackgroundError: func(err error) {
			s.logger.Error("checkpoint: background write failed", "dir", s.dir, "err", oneLine("%v", err))
		},
		// A read that finds damage returns an error to its caller. The listener only logs the damage.
		DataCorruption: func(info pebble.DataCorruptionInfo) {
			s.logger.Error("checkpoint: damaged file", "dir", s.dir, "path", info.Path, "err",
				oneLine("%v", info.Details))
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
