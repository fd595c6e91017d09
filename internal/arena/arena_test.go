package arena

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func create(t *testing.T, tokens int) *Arena {
	t.Helper()
	a, err := Host{}.Create(tokens)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestAnotherProcessWritesToAnArena, and leaves nothing behind.
func TestAnotherProcessWritesToAnArena(t *testing.T) {
	if name := os.Getenv("ARENA"); name != "" {
		a, err := Host{}.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		a.Tokens[999_999] = 7
		return // without Close
	}
	before := descriptors(t)
	a := create(t, 1_000_000)
	child := exec.Command(os.Args[0], "-test.run=^TestAnotherProcessWritesToAnArena$")
	child.Env = append(os.Environ(), "ARENA="+a.Name)
	if out, err := child.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if len(a.Tokens) != 1_000_000 || a.Tokens[999_999] != 7 {
		t.Errorf("%d tokens, the last is %d", len(a.Tokens), a.Tokens[len(a.Tokens)-1])
	}
	if err := a.Close(); err != nil || descriptors(t) != before {
		t.Errorf("%v: %d descriptors, %d before", err, descriptors(t), before)
	}
}

// TestANumberThatIsUsedAgainIsNoArena: the owner closed the arena, and its descriptor has a new meaning.
func TestANumberThatIsUsedAgainIsNoArena(t *testing.T) {
	a := create(t, 10)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	b := create(t, 10)
	defer b.Close()
	number, _, _ := strings.Cut(b.Name, ":")
	_, label, _ := strings.Cut(a.Name, ":")
	_, err := Host{}.Open(number + ":" + label)
	if err == nil || !strings.Contains(err.Error(), "its owner has closed it") {
		t.Errorf("open: %v", err)
	}
	for _, name := range []string{"", "/etc/passwd", "/etc/passwd:" + prefix, "/proc/self/fd/1:x"} {
		if _, err := (Host{}).Open(name); err == nil {
			t.Errorf("%q was opened", name)
		}
	}
}

// TestAnArenaKeepsItsSize: an access of the other process can never fail.
func TestAnArenaKeepsItsSize(t *testing.T) {
	a := create(t, 5000)
	defer a.Close()
	peer, err := os.OpenFile(strings.Split(a.Name, ":")[0], os.O_RDWR, 0)
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
