package decode

import (
	"fmt"
	"io"
	"math/bits"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// File holds slabs of block texts outside of the process's memory. It has no name, so its space is free once the
// process ends. Its pages belong to the page cache. Slabs lie in places whose sizes are powers of two, and a place is
// used again. A nil File has no room. It is safe for concurrent use.
type File struct {
	file *os.File

	mu   sync.Mutex
	end  int64           // behind the last place
	free map[int][]int64 // by the exponent of the size: places without a slab
}

// leastFree is the part of a file system that texts leave free: one of so many.
const leastFree = 20

// NewFile makes a file in a directory. A directory in memory is an error, because a file in it saves nothing.
func NewFile(dir string) (*File, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return nil, fmt.Errorf("examine the file system of %s: %w", dir, err)
	}
	if fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.RAMFS_MAGIC {
		return nil, fmt.Errorf("keep texts in a file in %s: it is in memory; use a run directory on a disk", dir)
	}
	return newFile(dir)
}

func newFile(dir string) (*File, error) {
	f, err := os.CreateTemp(dir, "texts-")
	if err != nil {
		return nil, fmt.Errorf("keep texts in a file: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		_ = f.Close() // the error of Remove says more
		return nil, fmt.Errorf("keep texts in a file: %w", err)
	}
	return &File{file: f, free: map[int][]int64{}}, nil
}

// Close gives back the space. No text of the file is used any more.
func (f *File) Close() error {
	if f == nil {
		return nil
	}
	return f.file.Close()
}

// put writes a slab and returns its place. It reports whether there was room: a slab for which there is none stays in
// memory.
func (f *File) put(slab []byte) (at int64, ok bool) {
	if !f.hasRoom() {
		return 0, false
	}
	at = f.take(len(slab))
	if _, err := f.file.WriteAt(slab, at); err != nil {
		f.give(at, len(slab))
		return 0, false
	}
	return at, true
}

// hasRoom reports whether the file system has space that texts may use.
func (f *File) hasRoom() bool {
	if f == nil {
		return false
	}
	var fs unix.Statfs_t
	return unix.Fstatfs(int(f.file.Fd()), &fs) == nil && fs.Bavail > fs.Blocks/leastFree
}

// take returns a place for n bytes.
func (f *File) take(n int) (at int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	size := bits.Len(uint(n - 1))
	if places := f.free[size]; len(places) > 0 {
		f.free[size] = places[:len(places)-1]
		return places[len(places)-1]
	}
	at = f.end
	f.end += 1 << size
	return at
}

// give takes back the place of n bytes.
func (f *File) give(at int64, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	size := bits.Len(uint(n - 1))
	f.free[size] = append(f.free[size], at)
}

// read fills a buffer from a place.
func (f *File) read(buf []byte, at int64) error {
	if _, err := f.file.ReadAt(buf, at); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("read the text of a block back from the run directory: %w", err)
	}
	return nil
}
