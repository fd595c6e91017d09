package memfd

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func create(t *testing.T, bytes int64) *Memory {
	t.Helper()
	m, err := Create("test", bytes)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestAnotherProcessShares the memory, and leaves nothing behind.
func TestAnotherProcessShares(t *testing.T) {
	if name := os.Getenv("MEMORY"); name != "" {
		m, err := Open(name)
		if err != nil {
			t.Fatal(err)
		}
		m.Bytes[999_999] = 7
		return // without Close
	}
	before := descriptors(t)
	m := create(t, 1_000_000)
	if err := m.Populate(); err != nil {
		t.Fatal(err)
	}
	child := exec.Command(os.Args[0], "-test.run=^TestAnotherProcessShares$")
	child.Env = append(os.Environ(), "MEMORY="+m.Name())
	if out, err := child.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if len(m.Bytes) != 1_000_000 || m.Bytes[999_999] != 7 {
		t.Errorf("%d bytes, the last is %d", len(m.Bytes), m.Bytes[len(m.Bytes)-1])
	}
	if err := m.Close(); err != nil || descriptors(t) != before {
		t.Errorf("%v: %d descriptors, %d before", err, descriptors(t), before)
	}
}

// TestMemoryOutlivesItsOwner: the mapping of another process stays valid.
func TestMemoryOutlivesItsOwner(t *testing.T) {
	m := create(t, 5000)
	m.Bytes[4999] = 9
	peer, err := Open(m.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if peer.Bytes[4999] != 9 {
		t.Errorf("the last byte is %d", peer.Bytes[4999])
	}
}

// TestANumberThatIsUsedAgainIsRefused: the owner closed the memory, and its descriptor has a new meaning.
func TestANumberThatIsUsedAgainIsRefused(t *testing.T) {
	a := create(t, 10)
	was := a.Name()
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	b := create(t, 10)
	defer b.Close()
	number, _, _ := strings.Cut(b.Name(), ":")
	_, label, _ := strings.Cut(was, ":")
	_, err := Open(number + ":" + label)
	if err == nil || !strings.Contains(err.Error(), "its owner has closed it") {
		t.Errorf("open: %v", err)
	}
	for _, name := range []string{"", "/etc/passwd", "/etc/passwd:" + prefix, "/proc/self/fd/1:x"} {
		if _, err := Open(name); err == nil {
			t.Errorf("%q was opened", name)
		}
	}
}

// TestTheSizeIsFixed: an access of the other process can never fail.
func TestTheSizeIsFixed(t *testing.T) {
	m := create(t, 20_000)
	defer m.Close()
	peer, err := os.OpenFile(strings.Split(m.Name(), ":")[0], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	for _, size := range []int64{0, 1 << 20} {
		if err := peer.Truncate(size); err == nil {
			t.Errorf("it could be resized to %d bytes", size)
		}
	}
	open, err := unix.MemfdCreate(prefix+"open", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(open), "open")
	defer file.Close()
	if err := check(file, prefix+"open"); err == nil || !strings.Contains(err.Error(), "not sealed") {
		t.Errorf("without seals: %v", err)
	}
}
