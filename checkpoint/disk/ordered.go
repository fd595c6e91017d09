package disk

import (
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// orderedFS syncs a folder before a marker is created or removed in it. A marker names another file of its folder, and
// Pebble syncs the folder only after both exist. A file system may write directory entries in any order. So a power cut
// could leave a marker that names a missing file, and the database would not open.
type orderedFS struct{ vfs.FS }

// Create syncs the folder before it creates a marker.
func (o orderedFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := o.settle(name); err != nil {
		return nil, err
	}
	return o.FS.Create(name, category)
}

// Remove syncs the folder before it removes a marker. The sync also makes the marker's successor durable.
func (o orderedFS) Remove(name string) error {
	if err := o.settle(name); err != nil {
		return err
	}
	return o.FS.Remove(name)
}

// Unwrap returns the file system beneath.
func (o orderedFS) Unwrap() vfs.FS { return o.FS }

func (o orderedFS) settle(name string) error {
	if !strings.HasPrefix(o.PathBase(name), "marker.") {
		return nil
	}
	return syncDir(o.FS, o.PathDir(name))
}
