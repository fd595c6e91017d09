package index

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"millrace/internal/limits"
)

// FS has the store's writes: the seam for tests of full disks and crashes.
type FS interface {
	MkdirAll(dir string) error
	// Open opens a file for reading and writing. With make, it makes a missing file.
	Open(path string, make bool) (File, error)
	// Rename moves a file to a name, also if another file has the name.
	Rename(from, to string) error
	Remove(path string) error
	SyncDir(dir string) error
}

// File is an open file of a store.
type File interface {
	io.WriterAt
	Fd() uintptr
	Name() string
	// IsReadOnly reports whether the file was opened for reading alone, because it cannot be written.
	IsReadOnly() bool
	// Reserve takes the room for bytes from … to on the disk and extends the file. New bytes are zero.
	Reserve(from, to int64) error
	Sync() error
	Close() error
}

// OSFS returns the operating system's files.
func OSFS() FS { return osFS{} }

type osFS struct{}

func (osFS) MkdirAll(dir string) error    { return os.MkdirAll(dir, 0o777) }
func (osFS) Rename(from, to string) error { return os.Rename(from, to) }
func (osFS) Remove(path string) error     { return os.Remove(path) }

// Open opens a file of a directory that cannot be written for reading alone. Its writes fail.
func (osFS) Open(path string, make bool) (File, error) {
	flags := os.O_RDWR
	if make {
		flags |= os.O_CREATE
	}
	f, err := os.OpenFile(path, flags, 0o666)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) {
		if r, failed := os.Open(path); failed == nil {
			return osFile{r, true}, nil
		}
	}
	if err != nil {
		return nil, err
	}
	return osFile{f, false}, nil
}

func (osFS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

type osFile struct {
	*os.File
	isReadOnly bool
}

func (f osFile) IsReadOnly() bool { return f.isReadOnly }

// Sync writes the data and the size to the disk.
func (f osFile) Sync() error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Reserve allocates blocks. Else a write through a mapping to a hole would kill the process when the disk is full.
func (f osFile) Reserve(from, to int64) error {
	err := unix.Fallocate(int(f.Fd()), 0, from, to-from)
	if err == nil || !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.ENOSYS) {
		return wrap("reserve", to-from, err)
	}
	zeros := make([]byte, min(1<<20, to-from))
	for at := from; at < to; {
		n, err := f.WriteAt(zeros[:min(int64(len(zeros)), to-at)], at)
		if err != nil {
			return wrap("reserve", to-from, err)
		}
		at += int64(n)
	}
	return nil
}

func wrap(act string, size int64, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %d bytes: %w", act, size, err)
}

// lock takes or waits for the lock of an open file: unix.LOCK_EX, unix.LOCK_SH or unix.LOCK_UN.
func lock(f File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) {
			return limits.Lock(f.Name(), err, "set index_dir to a directory of a file system with locks")
		}
	}
}

// stat returns the size of an open file, and whether the file still has a name.
func stat(f File) (size int64, named bool, err error) {
	var st unix.Stat_t
	for {
		err := unix.Fstat(int(f.Fd()), &st)
		if err == nil {
			return st.Size, st.Nlink > 0, nil
		}
		if !errors.Is(err, unix.EINTR) {
			return 0, false, fmt.Errorf("stat %s: %w", f.Name(), err)
		}
	}
}
