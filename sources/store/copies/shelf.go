package copies

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"millrace/sources/store/openfiles"
)

// Shelf is a directory of copies. Several processes may use it. It is safe for concurrent use.
type Shelf struct {
	dir    string
	files  *openfiles.Pool
	reader *Reader
}

// NewShelf returns the shelf in a directory, which the first copy makes. The shelves of a process share the open files
// and the reader.
func NewShelf(dir string, files *openfiles.Pool, reader *Reader) *Shelf {
	return &Shelf{dir: dir, files: files, reader: reader}
}

// Dir returns the directory.
func (s *Shelf) Dir() string { return s.dir }

func (s *Shelf) path(name string) string { return filepath.Join(s.dir, name+".zst") }

// Write writes the unpacked bytes that open returns as a copy, and calls wrote after every frame. Only one process
// writes a copy at a time. If another process has written it meanwhile, Write keeps that copy, unless again is set. On
// an error only an earlier copy is left.
func (s *Shelf) Write(ctx context.Context, name string, again bool, open func() (io.ReadCloser, error),
	wrote func()) error {
	return write(ctx, s.path(name), again, open, wrote)
}

// Find opens a copy, which the caller closes. It returns nil if there is none. A copy that cannot be read is an error,
// and is removed, so that it is written again.
func (s *Shelf) Find(name string) (*Copy, error) {
	path := s.path(name)
	c := &Copy{shelf: s, path: path, file: s.files.File(func() (io.Closer, error) { return os.Open(path) })}
	err := c.use(func(f *os.File) error {
		st, err := f.Stat()
		if err == nil {
			c.table, err = readTable(f, st.Size())
		}
		return err
	})
	switch {
	case err == nil:
		return c, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, c.Close()
	}
	return nil, errors.Join(err, c.Remove(), c.Close())
}

// Remove removes the copy's file, so that it is written again.
func (c *Copy) Remove() error { return os.Remove(c.path) }
