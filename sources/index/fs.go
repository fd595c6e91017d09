package index

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// FS has the store's writes: the seam for tests of full disks and crashes.
type FS interface {
	MkdirAll(dir string) error
	// CreateTemp makes a new file. Other processes leave it alone until it is closed.
	CreateTemp(dir string) (TempFile, error)
	// Publish moves a finished file to its name. Without replace, a file that already has the name stays, and the new
	// one is removed.
	Publish(temp, name string, replace bool) error
	Remove(path string) error
	SyncDir(dir string) error
}

// TempFile is a file being written.
type TempFile interface {
	io.Writer
	// Reserve extends the file to size bytes and takes the room for them on the disk. New bytes are zero.
	Reserve(size int64) error
	Name() string
	Sync() error
	Close() error
}

// OSFS returns the operating system's files.
func OSFS() FS { return osFS{} }

type osFS struct{}

const tempPattern = ".index-*.tmp"

func (osFS) MkdirAll(dir string) error { return os.MkdirAll(dir, 0o777) }
func (osFS) Remove(path string) error  { return os.Remove(path) }

// CreateTemp locks the file, because clearStale removes files that no process holds. If that happens between the
// creation and the lock, it makes another file.
func (osFS) CreateTemp(dir string) (TempFile, error) {
	for {
		f, err := os.CreateTemp(dir, tempPattern)
		if err != nil {
			return nil, err
		}
		var st unix.Stat_t
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
			err = unix.Fstat(int(f.Fd()), &st)
			if err == nil && st.Nlink > 0 {
				return tempFile{f}, f.Chmod(0o644)
			}
		} else if !errors.Is(err, unix.EWOULDBLOCK) {
			return tempFile{f}, f.Chmod(0o644) // a file system without locks
		}
		f.Close()
	}
}

func (osFS) Publish(temp, name string, replace bool) error {
	if replace {
		return os.Rename(temp, name)
	}
	err := os.Link(temp, name)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return os.Remove(temp)
	}
	return os.Rename(temp, name) // a file system without links
}

func (osFS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

type tempFile struct{ *os.File }

// Reserve allocates blocks. Else a write through a mapping to a hole would kill the process when the disk is full.
func (f tempFile) Reserve(size int64) error {
	err := unix.Fallocate(int(f.Fd()), 0, 0, size)
	if err == nil || !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.ENOSYS) {
		return wrap("reserve", size, err)
	}
	at, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	zeros := make([]byte, 1<<20)
	for at < size {
		n, err := f.WriteAt(zeros[:min(int64(len(zeros)), size-at)], at)
		if err != nil {
			return wrap("reserve", size, err)
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

// clearStale removes temporary files whose writers died. It ignores errors: such a file only takes room.
func clearStale(dir string) {
	stale, err := filepath.Glob(filepath.Join(escape(dir), tempPattern))
	if err != nil {
		return
	}
	for _, path := range stale {
		f, err := os.Open(path)
		if err != nil {
			continue
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			os.Remove(path)
		}
		f.Close()
	}
}

// escape returns the pattern that matches a directory's name literally.
func escape(dir string) string {
	out := make([]byte, 0, len(dir))
	for i := range len(dir) {
		switch dir[i] {
		case '*', '?', '[', '\\':
			out = append(out, '\\')
		}
		out = append(out, dir[i])
	}
	return string(out)
}
