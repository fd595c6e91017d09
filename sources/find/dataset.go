package find

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"millrace"
	"millrace/sources/format/registry"
)

// mostIndex bounds the bytes of such a file.
const mostIndex = 1 << 30

// isIndex reports whether a file of this name lists the shards of the source's format.
func (f *sifter) isIndex(file string) bool {
	row := registry.Named(f.format)
	return row != nil && row.Shards != nil && filepath.Base(file) == registry.IndexName
}

// dataset returns the files that the index of a directory names, in its order. ok is false if the directory has no
// index, or the source's format has none. A file that is missing or has other bytes is an error.
func (f *finder) dataset(dir, root string) (found []match, ok bool, err error) {
	row := registry.Named(f.format)
	if row == nil || row.Shards == nil {
		return nil, false, nil
	}
	path := filepath.Join(dir, registry.IndexName)
	text, err := readIndex(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	shards, err := row.Shards(text)
	if err != nil {
		return nil, false, millrace.Errorf(
			millrace.ErrInvalid,
			"read %s: it is no index of %s: %w",
			path,
			f.format,
			err,
		)
	}
	for i, shard := range shards {
		file, err := fileOf(shard, dir)
		if err != nil {
			return nil, false, fmt.Errorf("read %s: shard %d: %w", path, i, err)
		}
		found = append(found, match{path: file, root: root})
	}
	return found, true, nil
}

func readIndex(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	st, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() > mostIndex {
		return nil, millrace.Errorf(millrace.ErrInvalid, "read %s: it has more than %d bytes", path, mostIndex)
	}
	return io.ReadAll(io.LimitReader(file, mostIndex))
}

// fileOf returns the path of a shard's file.
func fileOf(l registry.Listed, dir string) (string, error) {
	for _, file := range l.Files {
		if !filepath.IsLocal(file.Name) {
			return "", millrace.Errorf(millrace.ErrInvalid, "%q is no path below the directory", file.Name)
		}
		path := filepath.Join(dir, file.Name)
		st, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return "", err
		case st.Size() != file.Bytes && file.Bytes != registry.AnyBytes:
			return "", millrace.Errorf(millrace.ErrInvalid,
				"%s has %d bytes, and the index says %d; copy the file again", path, st.Size(), file.Bytes)
		}
		return path, nil
	}
	return "", &missing{filepath.Join(dir, l.Files[0].Name) + " is not there; copy it there, or write the index again"}
}
