// Package query answers questions about a run: its orchestrator answers while the run goes on, and its journal after
// that.
package query

import (
	"millrace/app/exit"
	"millrace/app/roles"
	"millrace/app/rundir"
	"millrace/checkpoint"
)

// Run is a run, or one of its streams, living or stopped.
type Run struct {
	Dir     string // the run directory, or that of the stream
	Version string // of this program, for a journal that it writes to
}

// open opens the journal of a stopped run for reading. The caller closes it.
func (r Run) open() (*checkpoint.Store, error) {
	store, _, err := rundir.OpenJournal(r.Dir, r.journal(), checkpoint.OpenReadOnly)
	return store, err
}

func (r Run) journal() checkpoint.Config {
	return checkpoint.Config{CreatedBy: r.Version, Logger: roles.NewLogger("journal")}
}

// isRunning reports whether an `up` runs on the directory.
func (r Run) isRunning() (bool, error) {
	_, running, err := rundir.Roles(r.Dir)
	return running, exit.Failure(err)
}
