package loader

import (
	"millrace/internal/failpoint"
	"millrace/sources"
	"millrace/sources/facts/index"
	"millrace/sources/find"
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

// Open implements index.FS.
func (f faultyFS) Open(path string, make bool) (index.File, error) {
	if err := f.fail.Fault("index/create"); err != nil {
		return nil, err
	}
	file, err := f.FS.Open(path, make)
	if err != nil {
		return nil, err
	}
	return faultyFile{file, f.fail}, nil
}

// Rename implements index.FS.
func (f faultyFS) Rename(from, to string) error {
	if err := f.fail.Fault("index/publish/before"); err != nil {
		return err
	}
	err := f.FS.Rename(from, to)
	f.fail.Hit("index/publish/after")
	return err
}

type faultyFile struct {
	index.File
	fail *failpoint.Set
}

// WriteAt implements io.WriterAt.
func (f faultyFile) WriteAt(b []byte, off int64) (int, error) {
	return f.fail.Write("index/write", b, func(b []byte) (int, error) { return f.File.WriteAt(b, off) })
}

// Reserve implements index.File.
func (f faultyFile) Reserve(from, to int64) error {
	if err := f.fail.Fault("index/reserve"); err != nil {
		return err
	}
	return f.File.Reserve(from, to)
}

// Sync implements index.File.
func (f faultyFile) Sync() error {
	if err := f.fail.Fault("index/sync"); err != nil {
		return err
	}
	return f.File.Sync()
}

// dataFS returns data files whose reads pass the point loader/file/read, if it is armed.
func dataFS(fail *failpoint.Set, files sources.FS) sources.FS {
	if !fail.Arms("loader/file/") {
		return files
	}
	tree, _ := files.(find.Tree)
	return faultyData{files, tree, fail}
}

type faultyData struct {
	sources.FS
	find.Tree // nil without stores
	fail      *failpoint.Set
}

// Open implements sources.FS.
func (f faultyData) Open(path string) (sources.OpenFile, error) {
	file, err := f.FS.Open(path)
	if err != nil {
		return nil, err
	}
	return faultyDatum{file, f.fail}, nil
}

type faultyDatum struct {
	sources.OpenFile
	fail *failpoint.Set
}

// ReadAt implements io.ReaderAt.
func (f faultyDatum) ReadAt(p []byte, off int64) (int, error) {
	if err := f.fail.Fault("loader/file/read"); err != nil {
		return 0, err
	}
	return f.OpenFile.ReadAt(p, off)
}
