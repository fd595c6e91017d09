package sourcetest

import (
	"fmt"
	"io"
	"io/fs"
	"sync/atomic"

	"millrace/sources"
	"millrace/sources/facts/identity"
)

// Files is a file system in memory.
type Files map[string][]byte

var _ sources.FS = Files{}

// Open implements sources.FS.
func (fs_ Files) Open(path string) (sources.OpenFile, error) {
	b, ok := fs_[path]
	if !ok {
		return nil, fmt.Errorf("open %s: %w", path, fs.ErrNotExist)
	}
	return &memFile{name: path, b: b}, nil
}

// Identity implements sources.FS: files in memory have no identities.
func (Files) Identity(string) (identity.File, error) { return identity.File{}, nil }

type memFile struct {
	name string
	b    []byte
}

func (f *memFile) Size() int64  { return int64(len(f.b)) }
func (f *memFile) Name() string { return f.name }
func (f *memFile) Close() error { return nil }

// Identity implements sources.OpenFile: files in memory have no identities.
func (f *memFile) Identity() (identity.File, error) { return identity.File{}, nil }

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off >= int64(len(f.b)) {
		return 0, io.EOF
	}
	n := copy(p, f.b[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// troubled wraps every file of a file system.
type troubled struct {
	sources.FS
	wrap func(sources.OpenFile) sources.OpenFile
}

func (t troubled) Open(path string) (sources.OpenFile, error) {
	f, err := t.FS.Open(path)
	if err != nil {
		return nil, err
	}
	return t.wrap(f), nil
}

// shortFile returns a few bytes a read, as a network file system may.
type shortFile struct{ sources.OpenFile }

func (f shortFile) ReadAt(p []byte, off int64) (int, error) {
	return f.OpenFile.ReadAt(p[:min(len(p), 7)], off)
}

// failingFile fails every read after the first left ones.
type failingFile struct {
	sources.OpenFile
	left *atomic.Int64
	err  error
}

func (f failingFile) ReadAt(p []byte, off int64) (int, error) {
	if f.left.Add(-1) < 0 {
		return 0, f.err
	}
	return f.OpenFile.ReadAt(p, off)
}
