package cache

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// FS has the writes of a store: the seam for tests of full disks and crashes.
type FS interface {
	Open(path string) (File, error)
	// Create opens a file for writing, and makes it if it is not there.
	Create(path string) (File, error)
	Rename(from, to string) error
	Remove(path string) error
}

// File is an open file of a store.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Reserve extends the file to size bytes and takes the room for them on the disk.
	Reserve(size int64) error
	Truncate(size int64) error
	Size() (int64, error)
	Sync() error
	// Lock locks the file for this opening of it, without waiting, and reports whether it got the lock.
	Lock(exclusive bool) bool
	// IsAt reports whether a path still names the file.
	IsAt(path string) bool
}

// OSFS returns the operating system's files.
func OSFS() FS { return osFS{} }

type osFS struct{}

func (osFS) Open(path string) (File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osFS) Create(path string) (File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osFS) Rename(from, to string) error { return os.Rename(from, to) }
func (osFS) Remove(path string) error     { return os.Remove(path) }

type osFile struct{ *os.File }

// Reserve allocates blocks where the file system can. A store then fails here when the disk is full, not in the middle
// of a write.
func (f osFile) Reserve(size int64) error {
	err := unix.Fallocate(int(f.Fd()), 0, 0, size)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		err = f.Truncate(size)
	}
	if err != nil {
		return fmt.Errorf("reserve %d bytes for %s: %w", size, f.Name(), err)
	}
	return nil
}

func (f osFile) Size() (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

// Lock takes any error but a lock of another process as success: then the file system has no locks.
func (f osFile) Lock(exclusive bool) bool {
	how := unix.LOCK_SH
	if exclusive {
		how = unix.LOCK_EX
	}
	return !errors.Is(unix.Flock(int(f.Fd()), how|unix.LOCK_NB), unix.EWOULDBLOCK)
}

func (f osFile) IsAt(path string) bool {
	open, err := f.Stat()
	if err != nil {
		return false
	}
	now, err := os.Stat(path)
	return err == nil && os.SameFile(open, now)
}

// isFull reports whether an error means that a disk has no room, or that this user may take no more of it.
func isFull(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EFBIG)
}
