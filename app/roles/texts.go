package roles

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"millrace/app/supervisor"
	"millrace/sources/read/feed/decode"
)

const (
	// mostTexts bounds a process's file of texts. The deployments for Kubernetes give a run directory more.
	mostTexts = 8 << 30
	// leastFree is the divisor of a file system's size: texts leave 1/leastFree of it free. The kubelet evicts pods
	// once a node has less than 15 % free.
	leastFree = 5
	// freeBytes are enough outside of a pod: on a disk of 160 GiB and more, they are less than a fifth. Four files of
	// the largest size fit.
	freeBytes = 4 * mostTexts
)

// newTexts returns a file for the texts of blocks of the process; nil: they stay in memory.
func (p *readers) newTexts() *decode.File {
	path := filepath.Join(supervisor.RuntimeDir(p.RunDir), fmt.Sprintf("%s-%d.texts", p.Name, os.Getpid()))
	f, err := openTexts(path, p.log)
	if err != nil {
		p.log.Warn("texts of blocks stay in memory", "err", err)
	}
	return f
}

// openTexts makes a file for texts and removes its name, so that its space is free once the process ends. A file in
// memory is an error, because it saves nothing.
func openTexts(path string, log *slog.Logger) (*decode.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make a file for texts of blocks: %w", err)
	}
	var fs unix.Statfs_t
	if err = os.Remove(path); err == nil {
		err = unix.Fstatfs(int(f.Fd()), &fs)
	}
	if err == nil && isInMemory(&fs) {
		err = errors.New("it is in memory; use a run directory on a disk")
	}
	if err != nil {
		_ = f.Close() // err says more
		return nil, fmt.Errorf("keep texts of blocks in %s: %w", path, err)
	}
	isPod := os.Getenv("KUBERNETES_SERVICE_HOST") != "" // each pod has it
	hasSpace := func() bool {
		var fs unix.Statfs_t
		return unix.Fstatfs(int(f.Fd()), &fs) == nil && hasSpace(&fs, isPod)
	}
	return decode.NewFile(f, mostTexts, hasSpace, log), nil
}

// isInMemory reports whether a file system is in memory. It cannot know that of an overlay.
func isInMemory(fs *unix.Statfs_t) bool {
	return fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.RAMFS_MAGIC
}

// hasSpace reports whether a file system has space that texts may use.
func hasSpace(fs *unix.Statfs_t, isPod bool) bool {
	least := (fs.Blocks - fs.Bfree + fs.Bavail) / leastFree
	if !isPod {
		least = min(least, freeBytes/uint64(max(fs.Frsize, 1)))
	}
	return fs.Bavail > least
}
