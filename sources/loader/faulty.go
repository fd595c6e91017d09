package loader

import (
	"millrace/internal/failpoint"
	"millrace/sources/index"
)

// indexFS returns the files of indexes: nil for the default, or ones that fail at the armed failpoints.
func indexFS(fail *failpoint.Set) index.FS {
	if !fail.Arms("index/") {
		return nil
	}
	return faultyFS{index.OSFS(), fail}
}

// faultyFS has the points index/create, index/write, index/reserve, index/sync, index/publish/before and
// index/publish/after.
type faultyFS struct {
	index.FS
	fail *failpoint.Set
}

// CreateTemp implements index.FS.
func (f faultyFS) CreateTemp(dir string) (index.TempFile, error) {
	if err := f.fail.Fault("index/create"); err != nil {
		return nil, err
	}
	file, err := f.FS.CreateTemp(dir)
	if err != nil {
		return nil, err
	}
	return faultyTemp{file, f.fail}, nil
}

// Publish implements index.FS.
func (f faultyFS) Publish(temp, name string, replace bool) error {
	if err := f.fail.Fault("index/publish/before"); err != nil {
		return err
	}
	err := f.FS.Publish(temp, name, replace)
	f.fail.Hit("index/publish/after")
	return err
}

type faultyTemp struct {
	index.TempFile
	fail *failpoint.Set
}

// Write implements io.Writer.
func (f faultyTemp) Write(b []byte) (int, error) {
	return f.fail.Write("index/write", b, f.TempFile.Write)
}

// Reserve implements index.TempFile.
func (f faultyTemp) Reserve(size int64) error {
	if err := f.fail.Fault("index/reserve"); err != nil {
		return err
	}
	return f.TempFile.Reserve(size)
}

// Sync implements index.TempFile.
func (f faultyTemp) Sync() error {
	if err := f.fail.Fault("index/sync"); err != nil {
		return err
	}
	return f.TempFile.Sync()
}
