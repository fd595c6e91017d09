package disk

import (
	"errors"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A store is replaced by a copy in two renames: the store's folder gets another name, and the copy gets the store's.
// BeginCopy makes the store's folder if there is none, so it is missing only between the two renames. Recover then ends
// the replacement.
const (
	copySuffix  = ".copy"   // of the folder of a copy
	oldSuffix   = ".old"    // of the folder of a store that was replaced
	copyingName = "COPYING" // a file that exists in a copy until the copy is whole
)

// BeginCopy returns the name of an empty folder for a copy of a store that will replace the one in dir. It removes
// earlier copies that were not completed.
func (d *Disk) BeginCopy(dir string) (copied string, err error) {
	if err := d.Recover(dir); err != nil {
		return "", err
	}
	copied = dir + copySuffix
	err = errors.Join(d.fs.RemoveAll(copied), d.fs.RemoveAll(dir+oldSuffix))
	if err == nil {
		err = d.MakeDir(dir)
	}
	if err == nil {
		err = d.MakeDir(copied)
	}
	if err != nil {
		return "", err
	}
	f, err := d.fs.Create(d.fs.PathJoin(copied, copyingName), vfs.WriteCategoryUnspecified)
	if err != nil {
		return "", err
	}
	return copied, errors.Join(f.Sync(), f.Close(), syncDir(d.fs, copied))
}

// Replace puts the copy in the place of the store in dir. The caller makes sure that neither is open, and that the copy
// is whole and durable. A power cut leaves one of both.
func (d *Disk) Replace(dir string) error {
	copied := dir + copySuffix
	if err := d.fs.Remove(d.fs.PathJoin(copied, copyingName)); err != nil {
		return err
	}
	if err := syncDir(d.fs, copied); err != nil {
		return err
	}
	if err := d.fs.Rename(dir, dir+oldSuffix); err != nil {
		return err
	}
	if err := syncDir(d.fs, d.fs.PathDir(dir)); err != nil {
		return err
	}
	if err := d.Recover(dir); err != nil {
		return err
	}
	return d.fs.RemoveAll(dir + oldSuffix)
}

// Recover ends a replacement that was interrupted between its renames. It does nothing if there is none.
func (d *Disk) Recover(dir string) error {
	if d.exists(dir) {
		return nil
	}
	for _, name := range []string{dir + copySuffix, dir + oldSuffix} {
		if d.exists(name) && !d.exists(d.fs.PathJoin(name, copyingName)) {
			if err := d.fs.Rename(name, dir); err != nil {
				return err
			}
			return syncDir(d.fs, d.fs.PathDir(dir))
		}
	}
	return nil
}

func (d *Disk) exists(name string) bool {
	_, err := d.fs.Stat(name)
	return err == nil
}
