// Package disktest provides disks for tests and simulations: in memory, with power cuts, and with injected failures.
package disktest

import (
	"math/rand/v2"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/checkpoint/disk"
)

// Disk is the disk of a store.
type Disk = disk.Disk

// NewMemory returns an empty disk in memory. It remembers which bytes were synced (see Crash), has ample room and keeps
// no reserve.
func NewMemory() *Disk {
	return NewRoomy(func() (free, total uint64) { return 1 << 40, 1 << 40 })
}

// NewRoomy is NewMemory, but Room returns the answers of room. Writes succeed even if room reports no free bytes.
func NewRoomy(room func() (free, total uint64)) *Disk {
	return disk.New(roomyFS{vfs.NewCrashableMem(), room}, 0)
}

// Crash returns a memory disk as a power cut at this moment would leave it: all synced data, and each unsynced block
// and directory entry with a chance of unsyncedPercent (0 to 100), drawn from seed. It does not change the given disk.
func Crash(d *Disk, unsyncedPercent int, seed uint64) *Disk {
	rng := rand.New(rand.NewPCG(seed, 0))
	cut := Memory(d).CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsyncedPercent, RNG: rng})
	room := func() (free, total uint64) {
		free, total, _ = d.Room("") // a memory disk always answers
		return free, total
	}
	return disk.New(roomyFS{cut, room}, 0)
}

// Memory returns the files of a memory disk, beneath all wrappers.
func Memory(d *Disk) *vfs.MemFS { return vfs.Root(d.FS()).(*vfs.MemFS) }

// roomyFS is a file system without a limit. room returns the sizes that it reports.
type roomyFS struct {
	vfs.FS
	room func() (free, total uint64)
}

// GetDiskUsage implements vfs.FS.
func (r roomyFS) GetDiskUsage(string) (vfs.DiskUsage, error) {
	free, total := r.room()
	return vfs.DiskUsage{AvailBytes: free, TotalBytes: total, UsedBytes: total - free}, nil
}

// Unwrap returns the file system beneath.
func (r roomyFS) Unwrap() vfs.FS { return r.FS }
