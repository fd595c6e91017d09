// Package remedy decides how a reader reacts to an error of a file or of its file system. docs/storage.md has its
// table.
package remedy

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// Remedy is a reader's next act after an error.
type Remedy int

const (
	// Final: no further try helps.
	Final Remedy = iota
	// Again: the same descriptor may serve the next try.
	Again
	// Anew: the descriptor may be dead for ever. The file is closed, and opened again with a check of its identity.
	Anew
)

// String returns the words of docs/storage.md.
func (r Remedy) String() string {
	switch r {
	case Again:
		return "read again"
	case Anew:
		return "opened anew"
	}
	return "final"
}

// Row is a row of the table: errors with one meaning and one remedy.
type Row struct {
	Remedy
	Errors  []syscall.Errno
	Meaning string
	Cure    string // of a final error
}

// Table returns the rows. An error that no row has is opened anew.
func Table() []Row {
	return []Row{
		{Again, []syscall.Errno{unix.EINTR, unix.EAGAIN, unix.EBUSY, unix.ENOMEM, unix.ENOBUFS, unix.ETIME,
			unix.ERESTART},
			"the kernel has no room or no time now", ""},
		{Anew, []syscall.Errno{unix.ENOTCONN, unix.ECONNABORTED, unix.ECONNREFUSED, unix.ECONNRESET, unix.EPIPE,
			unix.ESHUTDOWN, unix.ECANCELED},
			"the process or the server behind the mount died (FUSE), or evicted this host (Lustre)", ""},
		{Anew, []syscall.Errno{unix.ESTALE, unix.EBADF, unix.EBADFD, unix.EREMCHG},
			"the server forgot the open file (NFS)", ""},
		{Anew, []syscall.Errno{unix.EIO, unix.EREMOTEIO, unix.EREMOTE, unix.ENODEV, unix.ENXIO, unix.ENODATA,
			unix.ENOMEDIUM, unix.EMEDIUMTYPE, unix.EUNATCH, unix.ENOLINK, unix.ECOMM, unix.EPROTO, unix.ENONET},
			"the device or the server failed, or is gone", ""},
		{Anew, []syscall.Errno{unix.ETIMEDOUT, unix.EHOSTDOWN, unix.EHOSTUNREACH, unix.ENETDOWN, unix.ENETUNREACH,
			unix.ENETRESET, unix.EADDRNOTAVAIL},
			"the server does not answer", ""},
		{Anew, []syscall.Errno{unix.ENOENT},
			"the file or its mount is away", ""},
		{Anew, []syscall.Errno{unix.EACCES, unix.EPERM, unix.EKEYEXPIRED, unix.EKEYREVOKED,
			unix.EKEYREJECTED, unix.ENOKEY},
			"a permission, a ticket or a key is missing for now", ""},
		{Final, []syscall.Errno{unix.EMFILE, unix.ENFILE},
			"no descriptor is left, after all unused ones were closed",
			"raise `ulimit -n` or the sysctl fs.file-max, or set a lower limits.open_files"},
		{Final, []syscall.Errno{unix.EISDIR, unix.ENOTDIR, unix.ELOOP, unix.ENAMETOOLONG},
			"the path names no file", "correct the path of the source, or restore the file"},
		{Final, []syscall.Errno{unix.EINVAL, unix.EFAULT, unix.ESPIPE, unix.ENOSYS, unix.EOPNOTSUPP, unix.EOVERFLOW,
			unix.EFBIG},
			"the file system cannot do this read", "copy the files to another file system, and name them there"},
		{Final, []syscall.Errno{unix.EUCLEAN, unix.EBADMSG},
			"the file system found its own structures or checksums damaged",
			"check the file system, and restore the file"},
	}
}

// OfErrno returns the remedy of an error of the kernel.
func OfErrno(e syscall.Errno) Remedy { return rowOf(e).Remedy }

func rowOf(e syscall.Errno) Row {
	for _, row := range Table() {
		if slices.Contains(row.Errors, e) {
			return row
		}
	}
	return Row{Remedy: Anew}
}

// Explain adds the meaning and the cure to a final error of the kernel. It returns any other error as it is.
func Explain(err error) error {
	var errno syscall.Errno
	if r, known := Of(err); !known || r != Final || !errors.As(err, &errno) {
		return err
	}
	row := rowOf(errno)
	return fmt.Errorf("%w: %s: %s", err, row.Meaning, row.Cure)
}

// Of returns the remedy of an error. known is false for an error that is not the kernel's, for example damage. Such an
// error, the end of a file, and a file that its owner closed are final.
func Of(err error) (r Remedy, known bool) {
	var errno syscall.Errno
	switch {
	case err == nil, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, fs.ErrClosed):
		return Final, false
	case errors.As(err, &errno):
		return OfErrno(errno), true
	case errors.Is(err, fs.ErrNotExist):
		return Anew, true
	}
	return Final, false
}
