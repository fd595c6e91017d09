package sources

import (
	"errors"
	"fmt"
	"io"
	"os"

	"millrace"
	"millrace/sources/identity"
)

// FS is where shards lie: the seam for other stores and for tests that break reads.
type FS interface {
	// Open opens a file for random reads. Its size is that of this moment.
	Open(path string) (OpenFile, error)
	// Identity returns the identity of the file at a path, the zero value if the store cannot tell.
	Identity(path string) (identity.File, error)
}

// OpenFile is a File together with the duty to close it.
type OpenFile interface {
	File
	io.Closer
	// Identity returns the identity of the open file as it is now, the zero value if the store cannot tell.
	Identity() (identity.File, error)
}

// OSFS returns the operating system's files.
func OSFS() FS { return osFS{} }

type osFS struct{}

// Open opens a regular file; anything else (a directory, a pipe) is refused, as its size means nothing.
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
		return nil, fmt.Errorf("open shard %s: not a regular file", path)
	}
	return &osFile{File: f, size: st.Size()}, nil
}

// Identity implements FS.
func (osFS) Identity(path string) (identity.File, error) { return identity.OfPath(path) }

// osFile pins the size seen at opening: a file that shrinks or grows later is not the one whose manifest was made.
type osFile struct {
	*os.File
	size int64
}

// Identity implements OpenFile.
func (f *osFile) Identity() (identity.File, error) { return identity.OfOpen(f.Fd()) }

// Size returns the bytes of the file when it was opened.
func (f *osFile) Size() int64 { return f.size }

// ReadFull fills p from offset off. A file that ends before is damaged: whoever asks knows from its size, footer or index that the
// bytes have to be there. Other failures name the file and offset and keep their cause. Short reads are tolerated.
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
			return millrace.Errorf(millrace.ErrDamaged, "read %s: file ends at byte %d, want bytes up to %d", f.Name(), off+int64(done), off+int64(len(p)))
		}
		return fmt.Errorf("read %s at byte %d: %w", f.Name(), off+int64(done), err)
	}
	return nil
}

// Reader reads a stretch of a file in order. Unlike io.SectionReader it fails where the file ends before the stretch does.
type Reader struct {
	f    File
	off  int64
	end  int64
	tell func(bytes int64)
}

// NewReader reads bytes off … end of f.
func NewReader(f File, off, end int64) *Reader { return &Reader{f: f, off: off, end: end} }

// Progress has tell called with the offset reached after each read.
func (r *Reader) Progress(tell func(bytes int64)) { r.tell = tell }

// Offset returns the byte of the file that comes next.
func (r *Reader) Offset() int64 { return r.off }

// Read implements io.Reader.
func (r *Reader) Read(p []byte) (int, error) {
	if r.off >= r.end {
		return 0, io.EOF
	}
	if int64(len(p)) > r.end-r.off {
		p = p[:r.end-r.off]
	}
	if err := ReadFull(r.f, p, r.off); err != nil {
		return 0, err
	}
	r.off += int64(len(p))
	if r.tell != nil {
		r.tell(r.off)
	}
	return len(p), nil
}
