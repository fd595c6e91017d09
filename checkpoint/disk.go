package checkpoint

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Disk is what a store is kept on. A nil *Disk is the operating system's file system.
type Disk struct {
	fs vfs.FS
	// ballast is the size of the reserve kept for a full disk, in bytes; 0 keeps none.
	ballast int64
	// roomy says what a disk in memory has left and has in all.
	roomy func() (free, total uint64)
}

// room asks the file system under a folder for the bytes it has left and has in all.
func (d *Disk) room(dir string) (free, total uint64, err error) {
	if d.roomy != nil {
		free, total = d.roomy()
		return free, total, nil
	}
	u, err := d.fs.GetDiskUsage(dir)
	return u.AvailBytes, u.TotalBytes, err
}

const ballastBytes = 8 << 20

func systemDisk() *Disk { return &Disk{fs: vfs.Default, ballast: ballastBytes} }

// NewMemoryDisk returns an empty disk that lives in memory and remembers which bytes were synced, for tests and simulation.
func NewMemoryDisk() *Disk {
	return NewRoomyDisk(func() (free, total uint64) { return 1 << 40, 1 << 40 })
}

// NewRoomyDisk is NewMemoryDisk whose Store.Room answers what roomy says; writes succeed regardless.
func NewRoomyDisk(roomy func() (free, total uint64)) *Disk {
	return &Disk{fs: vfs.NewCrashableMem(), roomy: roomy}
}

// Crash returns the disk as a power cut at this moment would leave it: everything synced, and of the rest each block and each directory entry with a
// chance of unsyncedPercent (0 to 100), drawn from seed. The receiver goes on unharmed. It panics for a disk that did not come from NewMemoryDisk.
func (d *Disk) Crash(unsyncedPercent int, seed uint64) *Disk {
	mem := vfs.Root(d.fs).(*vfs.MemFS)
	rng := rand.New(rand.NewPCG(seed, 0))
	return &Disk{roomy: d.roomy, fs: mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsyncedPercent, RNG: rng})}
}

const ballastName = "BALLAST"

// ballast is a file that only takes up room. When a write finds the file system full, the file is deleted, the write is tried again and succeeds, and from
// then on room refuses new commits until the file could be made again. So a full disk is an error before it is the end.
type ballast struct {
	fs     vfs.FS // beneath the wrapper that notices a full disk
	dir    string
	size   int64 // bytes; 0: no ballast is kept
	logger *slog.Logger

	spent atomic.Bool // deleted, not yet made again
	mu    sync.Mutex  // held while the file is made
}

func (b *ballast) path() string { return b.fs.PathJoin(b.dir, ballastName) }

// watch returns b.fs with the reaction to a full disk built in.
func (b *ballast) watch() vfs.FS {
	if b.size == 0 {
		return b.fs
	}
	return vfs.OnDiskFull(b.fs, b.release)
}

// release runs inside a write that found no room, while all other writes wait.
func (b *ballast) release() {
	if b.spent.Swap(true) {
		return
	}
	err := b.fs.Remove(b.path())
	b.logger.Error("checkpoint: disk full, running on the reserve", "dir", b.dir, "reserve_bytes", b.size, "err", err)
}

// make writes the file if it is not there in full. It fails when there is no room.
func (b *ballast) make() error {
	if b.size == 0 {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if info, err := b.fs.Stat(b.path()); err == nil && info.Size() == b.size {
		b.spent.Store(false)
		return nil
	}
	f, err := b.fs.Create(b.path(), vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("create reserve %s: %w", b.path(), err)
	}
	err = errors.Join(fill(f, b.size), f.Close())
	if err != nil {
		return errors.Join(fmt.Errorf("write reserve %s: %w", b.path(), err), b.fs.Remove(b.path()))
	}
	b.spent.Store(false)
	return nil
}

// fill writes bytes rather than asking for room, and bytes that do not compress: a file system may promise room it does not have.
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

// room says whether new facts may be written. After a full disk it tries to build the reserve again.
func (b *ballast) room() error {
	if !b.spent.Load() {
		return nil
	}
	if err := b.make(); err != nil {
		return diskFull(b.dir, err)
	}
	b.logger.Info("checkpoint: the disk has room again", "dir", b.dir)
	return nil
}

// makeDir makes dir and its parents and syncs every folder that got a new entry.
func makeDir(fs vfs.FS, dir string) error {
	if _, err := fs.Stat(dir); err == nil {
		return nil
	}
	parent := fs.PathDir(dir)
	if parent != dir {
		if err := makeDir(fs, parent); err != nil {
			return err
		}
	}
	if err := fs.MkdirAll(dir, 0o755); err != nil || parent == dir {
		return err
	}
	return syncDir(fs, parent)
}

func syncDir(fs vfs.FS, dir string) error {
	f, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// creatingName is a file that is there while a store is being made. Pebble makes a database in several steps, and a power cut between them leaves one that
// does not open; but then nothing can have been acknowledged, and it may be made anew.
const creatingName = "CREATING"

// beginCreation marks an empty folder as a store in the making, and empties a folder whose store was never finished. It leaves any other folder as it is.
func beginCreation(fs vfs.FS, dir string) (fresh bool, err error) {
	names, err := fs.List(dir)
	if err != nil {
		return false, err
	}
	creating := slices.Contains(names, creatingName)
	fresh = true
	for _, name := range names {
		switch {
		case name == "LOCK" || name == creatingName || name == ballastName:
		case creating:
			if err := fs.RemoveAll(fs.PathJoin(dir, name)); err != nil {
				return false, err
			}
		default:
			fresh = false
		}
	}
	if !fresh {
		return false, nil
	}
	f, err := fs.Create(fs.PathJoin(dir, creatingName), vfs.WriteCategoryUnspecified)
	if err != nil {
		return false, err
	}
	return true, errors.Join(f.Sync(), f.Close(), syncDir(fs, dir))
}

// endCreation takes the mark away, for good, before anything is acknowledged.
func endCreation(fs vfs.FS, dir string) error {
	path := fs.PathJoin(dir, creatingName)
	if _, err := fs.Stat(path); err != nil {
		return nil // an old store
	}
	if err := fs.Remove(path); err != nil {
		return err
	}
	return syncDir(fs, dir)
}

// finished refuses a folder that has no store, or one that was never finished.
func finished(fs vfs.FS, dir string) error {
	names, err := fs.List(dir)
	if err != nil {
		return err
	}
	fresh := !slices.ContainsFunc(names, func(name string) bool { return name != "LOCK" && name != ballastName })
	if fresh || slices.Contains(names, creatingName) {
		return fmt.Errorf("%s: %w in %s: name the directory of a run that was started before", actOpenReadOnly, ErrNotFound, dir)
	}
	return nil
}

// orderedFS syncs a folder before it takes in a marker. A marker names another file of its folder, and Pebble syncs the folder only after both are in it;
// where directory entries reach the disk in any order, a power cut could leave a marker that names nothing, and a database that does not open.
type orderedFS struct{ vfs.FS }

// Create syncs the folder of a marker, and then is as beneath.
func (o orderedFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasPrefix(o.PathBase(name), "marker.") {
		if err := syncDir(o.FS, o.PathDir(name)); err != nil {
			return nil, err
		}
	}
	return o.FS.Create(name, category)
}

// Remove of a marker first makes sure that its successor is there.
func (o orderedFS) Remove(name string) error {
	if strings.HasPrefix(o.PathBase(name), "marker.") {
		if err := syncDir(o.FS, o.PathDir(name)); err != nil {
			return err
		}
	}
	return o.FS.Remove(name)
}

// Unwrap returns the file system beneath.
func (o orderedFS) Unwrap() vfs.FS { return o.FS }
