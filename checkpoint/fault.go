package checkpoint

import "github.com/cockroachdb/pebble/v2/vfs/errorfs"

// DiskAct is what a store is about to do to its disk.
type DiskAct uint8

// The acts that a disk may refuse.
const (
	DiskWrite DiskAct = iota // bytes to a file
	DiskSync                 // of a file or a folder
	DiskRemove
)

// Faulty returns the same disk, which asks fault before each of these acts and fails with its answer where that is not nil; fault is called from several
// goroutines and may wait. The store keeps reserve bytes back for a full disk.
func (d *Disk) Faulty(reserve int64, fault func(act DiskAct, path string) error) *Disk {
	inject := func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpFileWrite, errorfs.OpFileWriteAt, errorfs.OpFilePreallocate:
			return fault(DiskWrite, op.Path)
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
			return fault(DiskSync, op.Path)
		case errorfs.OpRemove:
			return fault(DiskRemove, op.Path)
		}
		return nil
	}
	return &Disk{fs: errorfs.Wrap(d.fs, errorfs.InjectorFunc(inject)), ballast: reserve}
}
