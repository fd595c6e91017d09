// Package identity compares a file with an earlier state by the metadata of its file system.
//
// On one host an unchanged identity proves unchanged content, with three exceptions: damage below the file system;
// writes to a mapping that the kernel has not written back; two changes within one tick of the file system's clock. A
// changed identity proves nothing: files are touched, copied and moved. Then the content must be compared.
package identity

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// File is one state of one file on one host. The zero value means that the store has no identities.
type File struct {
	Device   uint64
	Inode    uint64
	Size     int64
	Modified int64 // nanoseconds since 1970
	Changed  int64 // the last change of content, owner, mode or names, likewise
}

// OfPath returns the identity of the file at a path.
func OfPath(path string) (File, error) {
	var st unix.Stat_t
	for {
		err := unix.Stat(path, &st)
		if err == nil {
			return of(&st), nil
		}
		if !errors.Is(err, unix.EINTR) {
			return File{}, fmt.Errorf("stat %s: %w", path, err)
		}
	}
}

// OfOpen returns the identity of an open file.
func OfOpen(fd uintptr) (File, error) {
	var st unix.Stat_t
	for {
		err := unix.Fstat(int(fd), &st)
		if err == nil {
			return of(&st), nil
		}
		if !errors.Is(err, unix.EINTR) {
			return File{}, fmt.Errorf("stat of an open file: %w", err)
		}
	}
}

func of(st *unix.Stat_t) File {
	return File{Device: uint64(st.Dev), Inode: st.Ino, Size: st.Size, Modified: st.Mtim.Nano(), Changed: st.Ctim.Nano()}
}

// objects is the Device of objects of a store. It is no number of a device.
const objects = 1<<64 - 1

// OfObject returns the identity of an object of a store. version is a hash of its ETag or generation, modified is in
// nanoseconds since 1970.
func OfObject(size, modified int64, version uint64) File {
	return File{Device: objects, Inode: version, Size: size, Modified: modified, Changed: modified}
}

// IsObject reports whether the file is an object of a store.
func (f File) IsObject() bool { return f.Device == objects }

// IsZero reports whether the identity is unknown.
func (f File) IsZero() bool { return f == File{} }

// EqualsStored compares with an identity that another process may have stored. Numbers of devices differ between hosts
// and change at a restart of a host, so they are not compared.
func (f File) EqualsStored(was File) bool {
	f.Device, was.Device = 0, 0
	return f == was
}

// IsSameVersion reports whether two identities have the same size and time of modification, as copies and renamed files
// do.
func (f File) IsSameVersion(was File) bool { return f.Size == was.Size && f.Modified == was.Modified }

// IsRenumbered reports whether two identities have the same size and times. Then only numbers of inodes and devices may
// differ: some file systems give a file new ones at each mount, on each host, or at each look. Numbers of objects are
// versions and not such numbers.
func (f File) IsRenumbered(was File) bool {
	return f.IsSameVersion(was) && f.Changed == was.Changed && !f.IsObject() && !was.IsObject()
}

// Difference returns in words the first difference from an earlier identity.
func (f File) Difference(was File) string {
	at := func(ns int64) string { return time.Unix(0, ns).UTC().Format("2006-01-02 15:04:05.000000") }
	switch {
	case f.Size != was.Size:
		return fmt.Sprintf("it had %d bytes and has %d", was.Size, f.Size)
	case f.IsObject() && was.IsObject() && f.Inode != was.Inode:
		return fmt.Sprintf("the object was replaced at %s (before: %s)", at(f.Modified), at(was.Modified))
	case f.Inode != was.Inode:
		return fmt.Sprintf("another file is in its place (inode %d, was %d)", f.Inode, was.Inode)
	case f.Modified != was.Modified:
		return fmt.Sprintf("it was modified at %s (before: %s)", at(f.Modified), at(was.Modified))
	case f.Changed != was.Changed:
		return fmt.Sprintf("its inode was changed at %s (before: %s)", at(f.Changed), at(was.Changed))
	}
	return "it is on another device"
}
