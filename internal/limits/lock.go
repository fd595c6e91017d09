package limits

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// noLocks is the cause and the cure of a mount without locks.
const noLocks = "its mount gives no locks, as NFS does without its lock service: mount it as NFS version 4, or start " +
	"lockd and statd on both sides"

// Lock returns the error of a file that cannot be locked: its name, the cause and the cure. elsewhere is the cure that
// always helps: how to put the file in another place.
func Lock(file string, err error, elsewhere string) error {
	err = fmt.Errorf("lock %s: %w", file, err)
	switch {
	case errors.Is(err, unix.ENOLCK):
		return &explained{err, noLocks + "; or " + elsewhere}
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
		return &explained{err, "its file system cannot lock files: " + elsewhere}
	}
	return &explained{err, elsewhere}
}
