package seam

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// talk sends a word through a socket and expects its echo.
func talk(t *testing.T, address string) {
	t.Helper()
	l, err := UnixNet{}.Listen(address)
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
	c, err := UnixNet{}.Dial(context.Background(), address)
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
		if c, err := (UnixNet{}).Dial(context.Background(), path); err == nil {
			c.Close()
			t.Errorf("%s: connected", path)
		}
		if l, err := (UnixNet{}).Listen(filepath.Join(t.TempDir(), "absent", dir, "s")); err == nil {
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
	var _ Net = UnixNet{}
	var _ net.Listener = (*net.UnixListener)(nil)
}
