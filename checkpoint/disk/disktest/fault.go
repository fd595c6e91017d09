package disktest

import (
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"millrace/checkpoint/disk"
)

// Act is an operation that a disk is about to do.
type Act uint8

// The operations that can be made to fail.
const (
	Write  Act = iota // bytes to a file
	Sync              // of a file or a folder
	Remove            // of a file
)

// NewFaulty returns a disk on the files of d. The disk calls fault before each operation, and the operation fails with
// the error of fault. fault runs in several goroutines and may block. The store keeps `reserve` bytes for a full disk.
func NewFaulty(d *Disk, reserve int64, fault func(act Act, path string) error) *disk.Disk {
	inject := func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpFileWrite, errorfs.OpFileWriteAt, errorfs.OpFilePreallocate:
			return fault(Write, op.Path)
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
			return fault(Sync, op.Path)
		case errorfs.OpRemove:
			return fault(Remove, op.Path)
		}
		return nil
	}
	return disk.New(errorfs.Wrap(d.FS(), errorfs.InjectorFunc(inject)), reserve)
}
