package setup

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"millrace/app/config"
	"millrace/sources/facts/index"
)

// CheckIndexDir creates index_dir if necessary and refuses a directory that cannot be written, unless it has an index:
// a complete one is used as it is. It runs before any process needs the directory. The error names the path and its
// place in the mixture file; it wraps millrace.ErrInvalid.
func CheckIndexDir(c *config.Config) error {
	dir := c.IndexPath()
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		var f *os.File
		if f, err = os.CreateTemp(dir, ".writable-*"); err == nil {
			err = errors.Join(f.Close(), os.Remove(f.Name()))
		}
	}
	isReadOnly := errors.Is(err, unix.EROFS) || errors.Is(err, fs.ErrPermission)
	if err == nil || isReadOnly && index.Exists(dir) {
		return nil
	}
	cure := "write a directory that can be written, or change its permissions"
	if isReadOnly {
		cure += "; a read-only directory needs the index that `millrace index` makes"
	}
	return c.FailureAt("index_dir", "index_dir "+dir+" cannot be written: "+err.Error(), err, cure)
}
