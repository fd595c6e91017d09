// Package disk is the file system beneath a checkpoint store. It does the things that Pebble leaves to its caller. It
// creates a store's folder so that an interrupted creation is detected, and replaces a store by a copy. It turns a full
// disk into an error before Pebble ends the process. It injects faults for tests.
//
//	disk.go      Disk: a file system and the size of its reserve
//	creation.go  creates the folder of a store, and marks it until the creation ends
//	replace.go   puts a copy in the place of a store
//	identity.go  the random name of one copy of a journal
//	tail.go      Tail: the file that witnesses the journal's end
//	reserve.go   Reserve: a file that is deleted when the disk is full
//	ordered.go   writes directory entries in the order that Pebble needs
//	faulty.go    failpoints of writes, syncs and creates
package disk

import (
	"errors"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/internal/failpoint"
)

// reserveBytes is the size of the reserve on the operating system's file system.
const reserveBytes = 8 << 20

// Disk is a file system that can hold a store.
type Disk struct {
	fs      vfs.FS
	reserve int64 // bytes; 0: no reserve is kept
}

// New returns a disk on a file system. A store on the disk keeps `reserve` bytes for a full disk; 0 keeps none.
func New(fs vfs.FS, reserve int64) *Disk { return &Disk{fs: fs, reserve: reserve} }

// System returns the operating system's file system, with a reserve of 8 MiB.
func System() *Disk { return New(vfs.Default, reserveBytes) }

// FS returns the file system, without the reaction to a full disk (see Reserve.FS).
func (d *Disk) FS() vfs.FS { return d.fs }

// IsSystem reports whether this is the operating system's file system, unwrapped.
func (d *Disk) IsSystem() bool { return d.fs == vfs.Default }

// WithFailpoints returns the disk with the failpoints checkpoint/write, checkpoint/sync and checkpoint/create. If fail
// arms none of the store's points, it returns d itself.
func (d *Disk) WithFailpoints(fail *failpoint.Set) *Disk {
	if !fail.Arms("checkpoint/") {
		return d
	}
	return New(faultyFS{d.fs, fail}, d.reserve)
}

// Room returns the free bytes and all bytes of the file system that holds a folder.
func (d *Disk) Room(dir string) (free, total uint64, err error) {
	u, err := d.fs.GetDiskUsage(dir)
	return u.AvailBytes, u.TotalBytes, err
}

// IsFull reports whether err says that the file system is full or a quota is used up.
func IsFull(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }
