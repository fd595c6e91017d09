package sourcetest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"millrace/sources"
	"millrace/sources/facts/identity"
	"millrace/sources/store/remedy"
)

// deadFS is a file system that dies: the files that are open then fail every read with an error. With the remedies of
// the table, they are read again after one failure, are good when they are opened anew, or fail for ever.
type deadFS struct {
	sources.FS
	errno syscall.Errno
	died  atomic.Bool
	fails atomic.Int64 // reads that failed
	once  sync.Map     // the paths whose reads have failed
}

type deadFile struct {
	sources.OpenFile
	fs     *deadFS
	isLate bool // it was opened after the death
}

func (d *deadFS) Open(path string) (sources.OpenFile, error) {
	f, err := d.FS.Open(path)
	if err != nil {
		return nil, err
	}
	return &deadFile{OpenFile: f, fs: d, isLate: d.died.Load()}, nil
}

func (f *deadFile) fault() error {
	if !f.fs.died.Load() {
		return nil
	}
	_, failed := f.fs.once.LoadOrStore(f.Name(), true)
	switch r := remedy.OfErrno(f.fs.errno); {
	case r == remedy.Again && failed, r == remedy.Anew && f.isLate:
		return nil
	}
	f.fs.fails.Add(1)
	return &os.PathError{Op: "read", Path: f.Name(), Err: f.fs.errno}
}

func (f *deadFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.fault(); err != nil {
		return 0, err
	}
	return f.OpenFile.ReadAt(p, off)
}

func (f *deadFile) Identity() (identity.File, error) {
	if f.fs.died.Load() && !f.isLate && remedy.OfErrno(f.fs.errno) == remedy.Anew {
		return identity.File{}, f.fs.errno
	}
	return f.OpenFile.Identity()
}

// allErrors returns the errors of the table of remedies, and one that it does not have.
func allErrors() (out []syscall.Errno) {
	for _, row := range remedy.Table() {
		out = append(out, row.Errors...)
	}
	return append(out, unix.EXFULL)
}

// rowErrors returns an error of each row of the table of remedies.
func rowErrors() (out []syscall.Errno) {
	for _, row := range remedy.Table() {
		out = append(out, row.Errors[0])
	}
	return out
}

// hostFaults tests a shard whose file system dies between two passes with each of some errors: either the second pass
// has the same records, or it ends with an error that is the host's.
func (f Fixture) hostFaults(t *testing.T, mk New, errnos []syscall.Errno, all []record) {
	t.Helper()
	dir := t.TempDir()
	for path, b := range f.Files {
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(path)), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var group errgroup.Group // most of the time is waits
	for _, errno := range errnos {
		group.Go(func() error {
			if err := f.hostFault(t, mk, dir, errno, all); err != nil {
				return fmt.Errorf("%s: %w", unix.ErrnoName(errno), err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}

func (f Fixture) hostFault(t *testing.T, mk New, dir string, errno syscall.Errno, all []record) error {
	fs := &deadFS{FS: sources.OSFS(), errno: errno}
	src, err := sources.Open(t.Context(), sources.Spec{Name: "web", Format: mk(fs), Base: dir,
		Patterns: []string{filepath.Base(f.path())}, Field: f.Field, Limits: f.Limits, Epochs: 1, Shuffle: "none",
		Tokenizer: counting{new(atomic.Int64)}}, sources.OpenOptions{FS: fs})
	if err != nil {
		if len(f.Want) == 0 {
			return nil
		}
		return err
	}
	defer src.Close()
	o, err := src.Acquire(t.Context(), 0)
	if err != nil {
		return err
	}
	defer src.Release(o)
	fs.died.Store(true)
	got, err := scan(t.Context(), o.Shard, 0)
	if err != nil && sources.Passing(o.Explain(err)) {
		got, err = scan(t.Context(), o.Shard, 0) // as a feed does
	}
	if fs.fails.Load() > 0 && remedy.OfErrno(errno) == remedy.Final {
		for i := range got {
			if got[i].Why != "" && err == nil {
				err = o.HostFailure(&sources.Record{Err: errors.New(got[i].Why)})
			}
		}
		if err = o.Explain(err); err == nil || sources.IsDamage(err) || sources.Passing(err) {
			return fmt.Errorf("a pass after %d failed reads ends with %w", fs.fails.Load(), err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	if len(got) != len(all) {
		return fmt.Errorf("a pass has %d records of %d", len(got), len(all))
	}
	for i := range got {
		got[i].Why = strings.ReplaceAll(got[i].Why, dir, filepath.Dir(f.path()))
		if !got[i].equal(all[i]) {
			return fmt.Errorf("a pass has %v for %v", got[i], all[i])
		}
	}
	return nil
}
