package seam

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// SystemNet uses the sockets of the host. An address with a slash is the path of a Unix stream socket in a private
// directory. Any other is the host:port of a TCP socket.
type SystemNet struct{}

// IsPath reports whether an address is a path of this host.
func IsPath(address string) bool { return strings.Contains(address, "/") }

// A TCP connection fails if bytes that were sent, or a probe, have no acknowledgement for DeadPeer. The kernel of the
// other host answers probes, however busy its processes are. A connection without traffic is probed every second, so it
// fails within about DeadPeer and a second after the other host is gone.
const (
	DeadPeer   = 2500 * time.Millisecond
	probeAfter = time.Second
)

// TCP is a connection between hosts. gRPC sets its own bound on silence on a plain *net.TCPConn, and not on this
// type.
type TCP struct {
	*net.TCPConn
	Host string // of the address that was dialled; empty: this end accepted the connection
}

// tcpListener accepts connections as *TCP.
type tcpListener struct{ *net.TCPListener }

// Accept implements net.Listener.
func (l tcpListener) Accept() (net.Conn, error) {
	c, err := l.AcceptTCP()
	if err != nil {
		return nil, err
	}
	return &TCP{TCPConn: c}, nil
}

// Listen binds an address. The listener of a host:port accepts *TCP connections.
func (SystemNet) Listen(address string) (net.Listener, error) {
	if IsPath(address) {
		return listenUnix(address)
	}
	c := net.ListenConfig{KeepAliveConfig: probes(), Control: boundSilence}
	l, err := c.Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, err
	}
	return tcpListener{l.(*net.TCPListener)}, nil
}

// Dial connects to an address. A connection to a host:port is a *TCP.
func (SystemNet) Dial(ctx context.Context, address string) (net.Conn, error) {
	if IsPath(address) {
		return dialUnix(ctx, address)
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("reach %q: want a path or host:port: %w", address, err)
	}
	d := net.Dialer{KeepAliveConfig: probes(), Control: boundSilence, Timeout: DeadPeer}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &TCP{conn.(*net.TCPConn), host}, nil
}

func probes() net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: true, Idle: probeAfter, Interval: probeAfter, Count: 3}
}

// boundSilence sets DeadPeer on a TCP socket. The connections that a socket accepts inherit it. With this bound, the
// kernel ignores the count of probes.
func boundSilence(_, _ string, raw syscall.RawConn) error {
	var set error
	err := raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(DeadPeer.Milliseconds()))
	})
	if err != nil {
		return err
	}
	return os.NewSyscallError("set TCP_USER_TIMEOUT", set)
}

// maxPath is the longest socket path that the kernel accepts, without the final zero.
const maxPath = 107

// lookEvery is the time between two looks for the file of a Unix socket.
const lookEvery = time.Second

// unixListener is a listener on a path. If its file is removed from outside, as cleaners of temporary directories do,
// Accept binds the path again. Open connections stay open.
type unixListener struct {
	address string

	mu     sync.Mutex
	now    *net.UnixListener
	closed bool
}

// listenUnix binds a path with mode 0600, and replaces a stale socket of our own. The caller's directory is private
// (0700), so no other user reaches the socket before its mode is set.
func listenUnix(address string) (net.Listener, error) {
	if err := os.Remove(address); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	l, err := bindUnix(address)
	if err != nil {
		return nil, err
	}
	return &unixListener{address: address, now: l}, nil
}

func bindUnix(address string) (*net.UnixListener, error) {
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
	return l.(*net.UnixListener), nil
}

// Accept implements net.Listener.
func (l *unixListener) Accept() (net.Conn, error) {
	for {
		now := l.listener()
		if err := now.SetDeadline(time.Now().Add(lookEvery)); err != nil {
			return nil, err
		}
		c, err := now.Accept()
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return c, err
		}
		l.renew()
	}
}

func (l *unixListener) listener() *net.UnixListener {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

// renew binds the path again if no file is there. If that fails, the next look tries again. A file of another process
// stays.
func (l *unixListener) renew() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := os.Lstat(l.address); l.closed || !os.IsNotExist(err) {
		return
	}
	if again, err := bindUnix(l.address); err == nil {
		l.now.Close()
		l.now = again
	}
}

// Close implements net.Listener. It leaves the file.
func (l *unixListener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	return l.now.Close()
}

// Addr implements net.Listener.
func (l *unixListener) Addr() net.Addr { return l.listener().Addr() }

// dialUnix connects to a path.
func dialUnix(ctx context.Context, address string) (net.Conn, error) {
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
