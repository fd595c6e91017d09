package seam

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// talk sends a word through a socket and expects its echo.
func talk(t *testing.T, address string) {
	t.Helper()
	l, err := SystemNet{}.Listen(address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	served := make(chan error, 1)
	go func() { // read below
		c, err := l.Accept()
		if err == nil {
			_, err = io.WriteString(c, "hello")
			c.Close()
		}
		served <- err
	}()
	c, err := SystemNet{}.Dial(context.Background(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got, err := io.ReadAll(c); err != nil || string(got) != "hello" {
		t.Errorf("%v: %q", err, got)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	if st, err := os.Stat(address); err != nil || st.Mode().Perm() != 0o600 || st.Mode().Type() != os.ModeSocket {
		t.Errorf("%v: mode %v", err, st.Mode())
	}
}

// TestSocketsOfAnyPath: sockets work on paths above the kernel's limit of 107 bytes.
func TestSocketsOfAnyPath(t *testing.T) {
	dir := t.TempDir()
	for _, length := range []int{len(dir) + 8, 106, 107, 108, 109, 300} {
		path := dir
		for len(path) < length-120 {
			path = filepath.Join(path, strings.Repeat("d", 60))
		}
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
		path = filepath.Join(path, strings.Repeat("s", length-len(path)-1))
		if len(path) != length {
			t.Fatalf("a path of %d bytes, want %d", len(path), length)
		}
		talk(t, path)
		talk(t, path) // the first one's socket is still there
	}
}

func TestDialFailsWithoutAListener(t *testing.T) {
	for _, dir := range []string{"", strings.Repeat("d", 120)} {
		path := filepath.Join(t.TempDir(), dir, "s")
		if c, err := (SystemNet{}).Dial(context.Background(), path); err == nil {
			c.Close()
			t.Errorf("%s: connected", path)
		}
		if l, err := (SystemNet{}).Listen(filepath.Join(t.TempDir(), "absent", dir, "s")); err == nil {
			l.Close()
			t.Error("listening in a directory that is not there")
		}
	}
}

// TestNoDescriptorIsLost: the directory's descriptor is closed once the socket is bound.
func TestNoDescriptorIsLost(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 120))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	open := func() int {
		names, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	talk(t, filepath.Join(dir, "s"))
	before := open()
	for range 20 {
		talk(t, filepath.Join(dir, "s"))
	}
	if after := open(); after > before+5 {
		t.Errorf("%d descriptors became %d", before, after)
	}
}

func TestClock(t *testing.T) {
	var c Clock = System{}
	a := c.Boottime()
	<-c.After(time.Millisecond)
	if b := c.Boottime(); b-a < int64(time.Millisecond) {
		t.Errorf("%d ns passed in a millisecond", b-a)
	}
	var _ Net = SystemNet{}
	var _ net.Listener = (*net.UnixListener)(nil)
}

// TestTCP: both ends of a TCP connection have the bound on silence, and the dialler knows the host's name.
func TestTCP(t *testing.T) {
	l, err := SystemNet{}.Listen("localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c, err := SystemNet{}.Dial(context.Background(), net.JoinHostPort("localhost", port))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	if host := c.(*TCP).Host; host != "localhost" {
		t.Errorf("dialled %s", host)
	}
	for _, tcp := range []*net.TCPConn{c.(*TCP).TCPConn, accepted.(*TCP).TCPConn} {
		raw, err := tcp.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		want := map[string][3]int{
			"TCP_USER_TIMEOUT": {unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(DeadPeer.Milliseconds())},
			"TCP_NODELAY":      {unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
			"TCP_KEEPIDLE":     {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 1},
			"TCP_KEEPINTVL":    {unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 1},
			"SO_KEEPALIVE":     {unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		}
		for name, w := range want {
			var got int
			control := raw.Control(func(fd uintptr) { got, err = unix.GetsockoptInt(int(fd), w[0], w[1]) })
			if control != nil || err != nil || got != w[2] {
				t.Errorf("%v: %s is %d, want %d (%v, %v)", tcp.LocalAddr(), name, got, w[2], err, control)
			}
		}
	}
}

func TestAddressWithoutPort(t *testing.T) {
	_, err := SystemNet{}.Dial(context.Background(), "a.example")
	if err == nil || !strings.Contains(err.Error(), `reach "a.example": want a path or host:port`) {
		t.Error(err)
	}
}

// TestARemovedSocketIsMadeAgain: a listener whose file a cleaner removed takes connections at its path again. It leaves
// the file of another process alone, and makes none after Close.
func TestARemovedSocketIsMadeAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := SystemNet{}.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	taken := make(chan net.Conn)
	go func() { // until Close
		defer close(taken)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			taken <- c
		}
	}()
	dial := func() error {
		c, err := SystemNet{}.Dial(t.Context(), path)
		if err == nil {
			(<-taken).Close()
			err = c.Close()
		}
		return err
	}
	for range 2 {
		if err := dial(); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for err = dial(); err != nil && time.Since(began) < 20*time.Second; err = dial() {
			time.Sleep(20 * time.Millisecond)
		}
		if err != nil {
			t.Fatal(err)
		}
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%v: mode %v", err, st.Mode())
		}
	}
	if err := errors.Join(os.Remove(path), os.WriteFile(path, []byte("other"), 0o600)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * lookEvery)
	if b, err := os.ReadFile(path); err != nil || string(b) != "other" {
		t.Errorf("the file of another process is %q: %v", b, err)
	}
	if err := errors.Join(os.Remove(path), l.Close()); err != nil {
		t.Fatal(err)
	}
	<-taken
	if _, err := os.Stat(path); err == nil {
		t.Error("a closed listener has a socket")
	}
}
