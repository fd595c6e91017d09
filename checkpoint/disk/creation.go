package disk

import (
	"errors"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// creatingName is a file that exists while a store is created. Pebble creates a database in several steps. A power cut
// between them leaves a database that does not open. Such a store has acknowledged nothing yet, so it may be created
// again.
const creatingName = "CREATING"

// MakeDir creates a folder with its parents, and syncs every folder that got a new entry.
func (d *Disk) MakeDir(dir string) error {
	if _, err := d.fs.Stat(dir); err == nil {
		return nil
	}
	parent := d.fs.PathDir(dir)
	if parent != dir {
		if err := d.MakeDir(parent); err != nil {
			return err
		}
	}
	if err := d.fs.MkdirAll(dir, 0o755); err != nil || parent == dir {
		return err
	}
	return syncDir(d.fs, parent)
}

// HasStore reports whether a folder holds a store that was created completely.
func (d *Disk) HasStore(dir string) (bool, error) {
	names, err := d.fs.List(dir)
	if err != nil {
		return false, err
	}
	files := slices.ContainsFunc(names, func(name string) bool { return name != "LOCK" && name != reserveName })
	return files && !slices.Contains(names, creatingName), nil
}

// BeginCreation marks an empty folder as a store in creation, and reports true. It first empties a folder that still
// has the mark of an interrupted creation. It leaves every other folder as it is, and reports false.
func (d *Disk) BeginCreation(dir string) (fresh bool, err error) {
	names, err := d.fs.List(dir)
	if err != nil {
		return false, err
	}
	creating := slices.Contains(names, creatingName)
	fresh = true
	for _, name := range names {
		switch {
		case name == "LOCK" || name == creatingName || name == reserveName || name == copyingName:
		case creating:
			if err := d.fs.RemoveAll(d.fs.PathJoin(dir, name)); err != nil {
				return false, err
			}
		default:
			fresh = false
		}
	}
	if !fresh {
		return false, nil
	}
	f, err := d.fs.Create(d.fs.PathJoin(dir, creatingName), vfs.WriteCategoryUnspecified)
	if err != nil {
		return false, err
	}
	return true, errors.Join(f.Sync(), f.Close(), syncDir(d.fs, dir))
}

// EndCreation removes the mark of BeginCreation and syncs the removal. The store must not acknowledge a commit before.
func (d *Disk) EndCreation(dir string) error {
	path := d.fs.PathJoin(dir, creatingName)
	if _, err := d.fs.Stat(path); err != nil {
		return nil // an older store
	}
	if err := d.fs.Remove(path); err != nil {
		return err
	}
	return syncDir(d.fs, dir)
}

func syncDir(fs vfs.FS, dir string) error {
	f, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
