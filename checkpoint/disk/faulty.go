package disk

import (
	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/internal/failpoint"
)

// faultyFS fails at the failpoints checkpoint/write, checkpoint/sync and checkpoint/create. Written bytes stay written.
// A torn write writes only the first half of its bytes.
type faultyFS struct {
	vfs.FS
	fail *failpoint.Set
}

// Create implements vfs.FS.
func (f faultyFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.fail.Fault("checkpoint/create"); err != nil {
		return nil, err
	}
	return f.wrap(f.FS.Create(name, category))
}

// ReuseForWrite implements vfs.FS.
func (f faultyFS) ReuseForWrite(from, to string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return f.wrap(f.FS.ReuseForWrite(from, to, category))
}

// OpenReadWrite implements vfs.FS.
func (f faultyFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return f.wrap(f.FS.OpenReadWrite(name, category, opts...))
}

// Unwrap returns the file system beneath.
func (f faultyFS) Unwrap() vfs.FS { return f.FS }

func (f faultyFS) wrap(file vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return faultyFile{file, f.fail}, nil
}

type faultyFile struct {
	vfs.File
	fail *failpoint.Set
}

// Write implements io.Writer.
func (f faultyFile) Write(b []byte) (int, error) {
	return f.fail.Write("checkpoint/write", b, f.File.Write)
}

// Sync implements vfs.File.
func (f faultyFile) Sync() error {
	if err := f.fail.Fault("checkpoint/sync"); err != nil {
		return err
	}
	return f.File.Sync()
}

// SyncData implements vfs.File.
func (f faultyFile) SyncData() error {
	if err := f.fail.Fault("checkpoint/sync"); err != nil {
		return err
	}
	return f.File.SyncData()
}

// SyncTo implements vfs.File.
func (f faultyFile) SyncTo(length int64) (bool, error) {
	if err := f.fail.Fault("checkpoint/sync"); err != nil {
		return false, err
	}
	return f.File.SyncTo(length)
}
