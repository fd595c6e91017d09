package sidecar

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// maxPath is the longest path of a socket address in bytes, without the final zero.
	maxPath = 107
	backlog = 64
	// socketBuffer has room for the descriptors of all frames and for large states, in bytes each way.
	socketBuffer = 1 << 20
)

// socket is a listening rank socket. Device and inode number identify its file, so that remove deletes no other file.
type socket struct {
	*net.UnixListener
	path     string
	dev, ino uint64
}

// listen binds path as a SOCK_SEQPACKET socket. It binds a private name, listens, and then renames the socket. Every
// process that finds the socket, and that mode admits, can therefore connect. The rename replaces a lost sidecar's
// socket.
func listen(path string, mode os.FileMode) (*socket, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	file := os.NewFile(uintptr(fd), path)
	defer file.Close() // the listener has its own descriptor
	s, err := bind(fd, file, path, mode)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return s, nil
}

func bind(fd int, file *os.File, path string, mode os.FileMode) (*socket, error) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	private := "." + filepath.Base(path) + "." + strconv.Itoa(os.Getpid())
	address := filepath.Join(filepath.Dir(path), private)
	if len(address) > maxPath {
		address = filepath.Join("/proc/self/fd", strconv.Itoa(int(dir.Fd())), private)
	}
	_ = os.Remove(address) // an earlier process with the same pid may have left one
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: address}); err != nil {
		return nil, err
	}
	moved := false
	defer func() {
		if !moved {
			_ = os.Remove(address)
		}
	}()
	if err := os.Chmod(address, mode); err != nil {
		return nil, err
	}
	if err := unix.Listen(fd, backlog); err != nil {
		return nil, err
	}
	l, err := net.FileListener(file)
	if err != nil {
		return nil, err
	}
	s := &socket{UnixListener: l.(*net.UnixListener), path: path}
	s.SetUnlinkOnClose(false)
	if err := s.place(address); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	moved = true
	return s, nil
}

// place renames the socket to its path. It replaces a stale socket, but no file of another kind.
func (s *socket) place(address string) error {
	if info, err := os.Lstat(s.path); err == nil && info.Mode()&os.ModeSocket == 0 {
		return errors.New("a file that is not a socket is in the way; move it away")
	}
	info, err := os.Lstat(address)
	if err != nil {
		return err
	}
	id, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return errors.New("the file system has no inode numbers")
	}
	s.dev, s.ino = id.Dev, id.Ino
	return os.Rename(address, s.path)
}

// remove closes the listener and unlinks the socket, unless another sidecar has replaced it.
func (s *socket) remove() error {
	err := s.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	info, statErr := os.Lstat(s.path)
	if statErr != nil {
		return err
	}
	if id, ok := info.Sys().(*syscall.Stat_t); !ok || id.Dev != s.dev || id.Ino != s.ino {
		return err
	}
	return errors.Join(err, os.Remove(s.path))
}
