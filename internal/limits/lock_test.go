package limits

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestTheFileThatCannotBeLockedIsNamed: with the cause and the cure of each error that file systems return.
func TestTheFileThatCannotBeLockedIsNamed(t *testing.T) {
	for _, c := range []struct {
		errno syscall.Errno
		want  string
	}{
		{unix.ENOLCK, "its mount gives no locks, as NFS does without its lock service: mount it as NFS version 4"},
		{unix.EOPNOTSUPP, "its file system cannot lock files: name another"},
		{unix.ENOSYS, "its file system cannot lock files: name another"},
		{unix.EIO, "input/output error: name another"},
	} {
		err := Explain(Lock("/a/b", c.errno, "name another"))
		text := err.Error()
		if !errors.Is(err, c.errno) || !strings.HasPrefix(text, "lock /a/b: "+c.errno.Error()+": ") ||
			!strings.Contains(text, c.want) || strings.Count(text, "name another") != 1 {
			t.Errorf("%v: %s", c.errno, text)
		}
	}
	if text := Explain(syscall.ENOLCK).Error(); strings.Count(text, noLocks) != 1 {
		t.Error(text)
	}
}
