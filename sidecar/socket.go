package sidecar

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxPath is the longest path of a socket address in bytes, without the final zero.
	maxPath = 107
	backlog = 64
	// socketBuffer has room for the descriptors of all frames and for large states, in bytes each way.
	socketBuffer = 1 << 20
)

// socket is a listening rank socket. If its file is removed from outside, accept makes it again. It is safe for
// concurrent use.
type socket struct {
	path string
	mode os.FileMode

	mu     sync.Mutex
	closed bool
	bound
}

// bound is a bound file. Device and inode number identify it, so that remove deletes no other file.
type bound struct {
	*net.UnixListener
	dev, ino uint64
}

// lookEvery is the time between two looks for the socket's file.
const lookEvery = time.Second

// listen binds path as a SOCK_SEQPACKET socket. It binds a private name, listens, and then renames the socket. Every
// process that finds the socket, and that mode admits, can therefore connect. The rename replaces a lost sidecar's
// socket.
func listen(path string, mode os.FileMode) (*socket, error) {
	b, err := bindAt(path, mode)
	if err != nil {
		return nil, err
	}
	return &socket{path: path, mode: mode, bound: b}, nil
}

// accept returns the next connection. It calls tell when the file was removed and is made again, or cannot be made.
func (s *socket) accept(tell func(error)) (*net.UnixConn, error) {
	for {
		s.mu.Lock()
		l := s.UnixListener
		s.mu.Unlock()
		if err := l.SetDeadline(time.Now().Add(lookEvery)); err != nil {
			return nil, err
		}
		c, err := l.AcceptUnix()
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return c, err
		}
		s.renew(tell)
	}
}

// renew binds the path again if no file is there. A file of another process stays.
func (s *socket) renew(tell func(error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := os.Lstat(s.path); s.closed || !errors.Is(err, fs.ErrNotExist) {
		return
	}
	b, err := bindAt(s.path, s.mode)
	if tell(err); err == nil {
		s.UnixListener.Close() // its connections stay open
		s.bound = b
	}
}

func bindAt(path string, mode os.FileMode) (bound, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return bound{}, fmt.Errorf("listen on %s: %w", path, err)
	}
	file := os.NewFile(uintptr(fd), path)
	defer file.Close() // the listener has its own descriptor
	b, err := bind(fd, file, path, mode)
	if err != nil {
		return bound{}, fmt.Errorf("listen on %s: %w", path, err)
	}
	return b, nil
}

func bind(fd int, file *os.File, path string, mode os.FileMode) (b bound, err error) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return b, err
	}
	defer dir.Close()
	private := "." + filepath.Base(path) + "." + strconv.Itoa(os.Getpid())
	address := filepath.Join(filepath.Dir(path), private)
	if len(address) > maxPath {
		address = filepath.Join("/proc/self/fd", strconv.Itoa(int(dir.Fd())), private)
	}
	_ = os.Remove(address) // an earlier process with the same pid may have left one
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: address}); err != nil {
		return b, err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(address)
		}
	}()
	if err := os.Chmod(address, mode); err != nil {
		return b, err
	}
	if err := unix.Listen(fd, backlog); err != nil {
		return b, err
	}
	l, err := net.FileListener(file)
	if err != nil {
		return b, err
	}
	b.UnixListener = l.(*net.UnixListener)
	b.SetUnlinkOnClose(false)
	if err := b.place(address, path); err != nil {
		return b, errors.Join(err, l.Close())
	}
	return b, nil
}

// place renames the socket to its path. It replaces a stale socket, but no file of another kind.
func (b *bound) place(address, path string) error {
	if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSocket == 0 {
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
	b.dev, b.ino = id.Dev, id.Ino
	return os.Rename(address, path)
}

// remove closes the listener and unlinks the socket, unless another sidecar has replaced it.
func (s *socket) remove() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
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
