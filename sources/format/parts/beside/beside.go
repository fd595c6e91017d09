// Package beside reads files that are beside the shards of a dataset and describe them all, such as an index.json.
package beside

import (
	"path/filepath"
	"sync"

	"millrace/sources"
)

// Cache keeps the file that was read last in the form T, because all shards of a directory share it. Its zero value is
// empty. It is safe for concurrent use.
type Cache[T any] struct {
	mu   sync.Mutex
	path string
	size int64
	last T
}

// Of returns the file of a name beside a shard. read makes its form. An error of the file system is returned as it is.
func (c *Cache[T]) Of(files sources.FS, shard sources.File, name string, read func(f sources.File) (T, error)) (T,
	error) {
	var none T
	path := filepath.Join(filepath.Dir(shard.Name()), name)
	f, err := files.Open(path)
	if err != nil {
		return none, err
	}
	defer f.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.path == path && c.size == f.Size() {
		return c.last, nil
	}
	last, err := read(f)
	if err != nil {
		return none, err
	}
	c.path, c.size, c.last = path, f.Size(), last
	return last, nil
}
