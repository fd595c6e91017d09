// Package query answers questions about a run: its orchestrator answers during the run, and its journal after that.
package query

import (
	"os"
	"strings"

	"millrace"
	"millrace/app/exit"
	"millrace/app/roles"
	"millrace/app/rundir"
	"millrace/app/supervisor"
	"millrace/checkpoint"
)

// Run is a run, or one of its streams, living or stopped.
type Run struct {
	Dir     string // the run directory, or that of the stream
	Version string // of this program, for a journal that it writes to
}

// At returns a stream of the run of a directory. version is that of this program.
func At(dir, stream, version string) (Run, error) {
	if err := rundir.Check(dir); err != nil {
		return Run{}, err
	}
	run := Run{Dir: supervisor.StreamDir(dir, stream), Version: version}
	if st, err := os.Stat(run.Dir); run.Dir == dir || err == nil && st.IsDir() {
		return run, nil
	}
	names := []string{string(millrace.Train)}
	entries, _ := os.ReadDir(supervisor.StreamDir(dir, "")) // no directory: no further streams
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return Run{}, exit.Failuref("%s has no stream %s: --stream can be %s", dir, stream, strings.Join(names, ", "))
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
