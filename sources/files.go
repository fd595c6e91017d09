package sources

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"millrace"
	"millrace/sources/facts/identity"
)

// FS is the store of shards: the seam for other stores, and for tests that break reads.
type FS interface {
	// Open opens a file for random reads. Its size does not change after that.
	Open(path string) (OpenFile, error)
	// Identity returns the identity of the file at a path, or the zero value if the store has no identities.
	Identity(path string) (identity.File, error)
}

// OpenFile is a File that its owner closes.
type OpenFile interface {
	File
	io.Closer
	// Identity returns the identity of the open file as it is now, or the zero value if the store has no identities.
	Identity() (identity.File, error)
}

// Range is a stretch of a file: its first byte, and the byte behind its last one.
type Range struct{ Start, End int64 }

// Expecter is implemented by files that fetch bytes before they are read.
//
// It is a property of one open file, and no declaration of a format: the store of the file decides it, and the formats
// read files of all stores. A file around another one passes the ranges on with Expect.
type Expecter interface {
	// Expect notes the ranges that one reader reads next, in ascending order. list returns them; Expect calls it at
	// once or not at all. The reader calls done after its reads.
	Expect(list func() []Range) (done func())
}

// Expect announces to a file the ranges that one reader reads next, if the file fetches bytes before they are read.
func Expect(f File, list func() []Range) (done func()) {
	if e, ok := f.(Expecter); ok {
		return e.Expect(list)
	}
	return func() {}
}

// OSFS returns the operating system's files.
func OSFS() FS { return osFS{} }

type osFS struct{}

// Open opens a regular file. It refuses directories and pipes, because their size has no meaning.
func (osFS) Open(path string) (OpenFile, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open shard: %w", err)
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("open shard: %w", err)
	}
	if !st.Mode().IsRegular() {
		f.Close()
		return nil, fmt.Errorf("open shard %s: not a regular file: %w", path, fs.ErrInvalid)
	}
	return &osFile{File: f, size: st.Size()}, nil
}

// Identity implements FS.
func (osFS) Identity(path string) (identity.File, error) { return identity.OfPath(path) }

// osFile keeps the size at opening: the manifest is of the file with that size.
type osFile struct {
	*os.File
	size int64
}

// Identity implements OpenFile.
func (f *osFile) Identity() (identity.File, error) { return identity.OfOpen(f.Fd()) }

// Size returns the bytes of the file when it was opened.
func (f *osFile) Size() int64 { return f.size }

// ReadFull fills p from offset off. If the file ends before, it is damaged, because its size, footer or index promised
// the bytes. Other errors name the file and the offset, and wrap their cause. Short reads are continued.
func ReadFull(f File, p []byte, off int64) error {
	for done := 0; done < len(p); {
		n, err := f.ReadAt(p[done:], off+int64(done))
		done += n
		if done >= len(p) {
			return nil
		}
		if err == nil && n > 0 {
			continue
		}
		if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return millrace.Errorf(millrace.ErrDamaged, "read %s: file ends at byte %d, want bytes up to %d",
				f.Name(), off+int64(done), off+int64(len(p)))
		}
		return fmt.Errorf("read %s at byte %d: %w", f.Name(), off+int64(done), err)
	}
	return nil
}

// Reader reads a section of a file in order. Unlike io.SectionReader, it fails if the file ends before the section.
type Reader struct {
	f    File
	off  int64
	end  int64
	tell func(bytes int64)
	err  error // of the file
}

// NewReader reads bytes off … end of f.
func NewReader(f File, off, end int64) *Reader { return &Reader{f: f, off: off, end: end} }

// Progress sets a function that is called with the new offset after each read.
func (r *Reader) Progress(tell func(bytes int64)) { r.tell = tell }

// Offset returns the offset of the next byte in the file.
func (r *Reader) Offset() int64 { return r.off }

// Err returns the error of the last read: the cause if an unpacker above the reader fails. nil: the bytes are damaged.
func (r *Reader) Err() error { return r.err }

// Read implements io.Reader.
func (r *Reader) Read(p []byte) (int, error) {
	if r.off >= r.end {
		return 0, io.EOF
	}
	if int64(len(p)) > r.end-r.off {
		p = p[:r.end-r.off]
	}
	if r.err = ReadFull(r.f, p, r.off); r.err != nil {
		return 0, r.err
	}
	r.off += int64(len(p))
	if r.tell != nil {
		r.tell(r.off)
	}
	return len(p), nil
}
