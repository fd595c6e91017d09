package disk

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const reserveName = "BALLAST"

// Reserve is a file that only takes up room. If a write finds the file system full, the reserve deletes the file, and
// the repeated write succeeds. From then on Restore fails until it can write the file again. So a store refuses new
// data before a write of Pebble fails. A failed write of Pebble would end the process.
type Reserve struct {
	fs     vfs.FS // beneath the wrapper that notices a full disk
	path   string
	size   int64 // bytes; 0: no reserve is kept
	logger *slog.Logger

	isSpent atomic.Bool // deleted, not yet written again
	mu      sync.Mutex  // held while the file is written
}

// Reserve returns the reserve of a store's folder. Prepare writes it.
func (d *Disk) Reserve(dir string, logger *slog.Logger) *Reserve {
	return &Reserve{fs: d.fs, path: d.fs.PathJoin(dir, reserveName), size: d.reserve, logger: logger}
}

// FS returns the file system for a database that writes. It spends the reserve when the disk is full, and writes
// directory entries in the order that the database needs.
func (r *Reserve) FS() vfs.FS {
	if r.size == 0 {
		return orderedFS{r.fs}
	}
	return orderedFS{vfs.OnDiskFull(r.fs, r.spend)}
}

// spend deletes the reserve. It runs inside a write that found no room, while all other writes wait.
func (r *Reserve) spend() {
	if r.isSpent.Swap(true) {
		return
	}
	err := r.fs.Remove(r.path)
	r.logger.Error("checkpoint: disk full, deleted the reserve", "path", r.path, "reserve_bytes", r.size, "err", err)
}

// Prepare writes the reserve if it is missing. A disk without room for the reserve is no error: the reserve then counts
// as spent.
func (r *Reserve) Prepare() error {
	err := r.write()
	if IsFull(err) {
		r.isSpent.Store(true)
		r.logger.Error("checkpoint: disk full, no room for the reserve", "path", r.path)
		return nil
	}
	return err
}

// Restore writes a spent reserve again. It fails while the disk has no room for the reserve. The store must not write
// new data then.
func (r *Reserve) Restore() error {
	if !r.isSpent.Load() {
		return nil
	}
	if err := r.write(); err != nil {
		return err
	}
	r.logger.Info("checkpoint: the disk has room again", "path", r.path)
	return nil
}

// write writes the file unless it exists with its full size.
func (r *Reserve) write() error {
	if r.size == 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if info, err := r.fs.Stat(r.path); err == nil && info.Size() == r.size {
		r.isSpent.Store(false)
		return nil
	}
	f, err := r.fs.Create(r.path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("create reserve %s: %w", r.path, err)
	}
	if err := errors.Join(fill(f, r.size), f.Close()); err != nil {
		return errors.Join(fmt.Errorf("write reserve %s: %w", r.path, err), r.fs.Remove(r.path))
	}
	r.isSpent.Store(false)
	return nil
}

// fill writes bytes that do not compress. A preallocated or compressed file might take up less room than its size.
func fill(f vfs.File, size int64) error {
	noise, block := rand.NewChaCha8([32]byte{}), make([]byte, 256<<10)
	for size > 0 {
		part := block[:min(size, int64(len(block)))]
		noise.Read(part)
		n, err := f.Write(part)
		if err != nil {
			return err
		}
		size -= int64(n)
	}
	return f.Sync()
}
