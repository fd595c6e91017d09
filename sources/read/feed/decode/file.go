package decode

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"
)

// File holds slabs of block texts outside of the process's memory. Every slab has a place of SlabBytes, and a place is
// used again. So the file's size is the most slabs that were held at the same time. A nil File has no room. It is safe
// for concurrent use.
type File struct {
	file     *os.File
	most     int64       // bytes of the file
	hasSpace func() bool // of the file system
	log      *slog.Logger

	mu       sync.Mutex
	end      int64     // behind the last place
	free     []int64   // places without a slab
	examined time.Time // hasSpace was called last
	spacious bool      // its answer
	failed   bool      // a write failed: there is no room any more
}

// examineEvery is the time for which an answer of the file system counts.
const examineEvery = time.Second

// NewFile returns an empty file of at most `most` bytes, which takes an open file over. hasSpace reports whether the
// file system has space that texts may use. log gets the first write that fails.
func NewFile(f *os.File, most int64, hasSpace func() bool, log *slog.Logger) *File {
	return &File{file: f, most: most, hasSpace: hasSpace, log: log}
}

// Close closes the file. No text of it is used any more.
func (f *File) Close() error {
	if f == nil {
		return nil
	}
	return f.file.Close()
}

// put writes a slab and returns its place. It reports whether there was room: a slab for which there is none stays in
// memory.
func (f *File) put(slab []byte) (at int64, ok bool) {
	if f == nil {
		return 0, false
	}
	if at, ok = f.take(); !ok {
		return 0, false
	}
	if _, err := f.file.WriteAt(slab, at); err != nil {
		f.fail(err)
		return 0, false
	}
	return at, true
}

// take returns a free place: the one that was given back last, because its pages are mostly in memory still.
func (f *File) take() (at int64, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch last := len(f.free) - 1; {
	case f.room() == 0:
		return 0, false
	case last >= 0:
		at, f.free = f.free[last], f.free[:last]
	default:
		at = f.end
		f.end += SlabBytes
	}
	return at, true
}

// room returns the bytes that the file has left; mu is held.
func (f *File) room() int64 {
	if f.failed {
		return 0
	}
	if now := time.Now(); now.Sub(f.examined) >= examineEvery {
		f.examined, f.spacious = now, f.hasSpace()
	}
	room := SlabBytes * int64(len(f.free))
	if f.spacious {
		room += (f.most - f.end) / SlabBytes * SlabBytes
	}
	return room
}

// hasRoom reports whether the file has room for the given number of bytes.
func (f *File) hasRoom(bytes int64) bool {
	if f == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.room() >= bytes
}

// fail ends the use of the file for further slabs.
func (f *File) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.failed {
		f.log.Warn("texts of blocks stay in memory from now on", "err", err)
	}
	f.failed = true
}

// give takes back a place.
func (f *File) give(at int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.free = append(f.free, at)
}

// read fills a buffer from a place.
func (f *File) read(buf []byte, at int64) error {
	if _, err := f.file.ReadAt(buf, at); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("read the text of a block back from the run directory: %w: check its disk, or use another"+
			" run directory", err)
	}
	return nil
}
