package query

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"

	"millrace"
	"millrace/app/exit"
	"millrace/app/rundir"
	"millrace/checkpoint"
	"millrace/orchestrator"
)

// Dump writes everything in the journal of a stopped run, a line each.
func (r Run) Dump(w io.Writer, asJSON bool) error {
	store, err := r.open()
	if err != nil {
		return err
	}
	defer store.Close()
	return store.Dump(w, checkpoint.DumpOptions{JSON: asJSON, Describe: describe})
}

// Verify checks every byte of the journal of a stopped run, and its ledger.
func (r Run) Verify() (checkpoint.Report, error) {
	store, err := r.open()
	if err != nil {
		return checkpoint.Report{}, err
	}
	defer store.Close()
	found, err := store.Verify()
	if err == nil {
		err = orchestrator.VerifyLedger(store, millrace.Train, found.Problem)
	}
	return found, exit.Failure(err)
}

// Compact frees the disk space that the journal of a stopped run does not need. It returns the bytes before and after.
// It opens the store twice: the second opening frees the logs of the first.
func (r Run) Compact(ctx context.Context) (before, after int64, err error) {
	for _, act := range []func(*checkpoint.Store) error{
		func(s *checkpoint.Store) error { return orchestrator.Retire(s, millrace.Train) },
		func(s *checkpoint.Store) error { return s.Compact(ctx) },
	} {
		store, at, err := rundir.OpenJournal(r.Dir, r.journal(), checkpoint.Open)
		if err != nil {
			return 0, 0, err
		}
		if before == 0 {
			before, err = folderBytes(at)
		}
		if err = errors.Join(err, act(store), store.Close()); err == nil {
			after, err = folderBytes(at)
		}
		if err != nil {
			return 0, 0, exit.Failure(err)
		}
	}
	return before, after, nil
}

// folderBytes adds up the sizes of the files in a folder. It ignores files that the open store drops meanwhile.
func folderBytes(dir string) (total int64, err error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	for _, f := range files {
		info, err := f.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, err
		}
		total += info.Size()
	}
	return total, nil
}
