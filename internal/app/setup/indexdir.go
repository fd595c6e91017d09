package setup

import (
	"errors"
	"os"

	"millrace/internal/app/config"
)

// CheckIndexDir creates index_dir if necessary and refuses a directory that cannot be written. It runs before any
// process needs the directory. The error names the path and its place in the mixture file; it wraps
// millrace.ErrInvalid.
func CheckIndexDir(c *config.Config) error {
	dir := c.IndexPath()
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		var f *os.File
		if f, err = os.CreateTemp(dir, ".writable-*"); err == nil {
			err = errors.Join(f.Close(), os.Remove(f.Name()))
		}
	}
	if err == nil {
		return nil
	}
	return c.ErrorAt(
		"index_dir", "index_dir "+dir+" cannot be written: "+err.Error(),
		"write a directory that can be written, or change its permissions",
	)
}
