// Package seam holds the interfaces through which roles use the clock and the network, so that a simulation can replace
// both. The interface for files is in package sources.
package seam

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Clock is the time of a role.
type Clock interface {
	Now() time.Time
	// Boottime returns nanoseconds since boot, equal for all processes of a host. It advances while the host sleeps.
	Boottime() int64
	After(d time.Duration) <-chan time.Time
}

// System is the real clock.
type System struct{}

// Now is time.Now.
func (System) Now() time.Time { return time.Now() }

// Boottime reads CLOCK_BOOTTIME.
func (System) Boottime() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return time.Now().UnixNano()
	}
	return ts.Nano()
}

// After is time.After.
func (System) After(d time.Duration) <-chan time.Time { return time.After(d) }

// Net listens and dials the sockets between roles.
type Net interface {
	Listen(address string) (net.Listener, error)
	Dial(ctx context.Context, address string) (net.Conn, error)
}

// UnixNet uses Unix stream sockets in a private directory.
type UnixNet struct{}

// maxPath is the longest socket path that the kernel accepts, without the final zero.
const maxPath = 107

// Listen binds a path with mode 0600, and replaces a stale socket of our own. The caller's directory is private (0700),
// so no other user reaches the socket before its mode is set.
func (UnixNet) Listen(address string) (net.Listener, error) {
	if err := os.Remove(address); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	short, done, err := shorten(address)
	if err != nil {
		return nil, err
	}
	defer done()
	l, err := net.Listen("unix", short)
	if err != nil {
		return nil, err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := os.Chmod(address, 0o600); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// Dial connects to a path.
func (UnixNet) Dial(ctx context.Context, address string) (net.Conn, error) {
	short, done, err := shorten(address)
	if err != nil {
		return nil, err
	}
	defer done()
	var d net.Dialer
	return d.DialContext(ctx, "unix", short)
}

// shorten returns a path through the directory's descriptor that is short enough for a socket address. The returned
// function releases the descriptor.
func shorten(path string) (string, func(), error) {
	if len(path) <= maxPath {
		return path, func() {}, nil
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", nil, err
	}
	return filepath.Join("/proc/self/fd", strconv.Itoa(int(dir.Fd())), filepath.Base(path)), func() { dir.Close() }, nil
}
