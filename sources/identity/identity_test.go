package identity_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"millrace"
	"millrace/sources/identity"
)

// TestIdentity: every change of a file changes its identity; reading the file does not.
func TestIdentity(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	identify := func() identity.File {
		t.Helper()
		byPath, err := identity.OfPath(path)
		if err != nil {
			t.Fatal(err)
		}
		open, err := identity.OfOpen(f.Fd())
		if err != nil || open != byPath {
			t.Fatalf("%+v open and %+v by path: %v", open, byPath, err)
		}
		return open
	}
	was := identify()
	if _, err := os.ReadFile(path); err != nil || identify() != was {
		t.Fatalf("reading changed it: %v", err)
	}
	for name, act := range map[string]func(){
		"written": func() { write("two") },
		"touched": func() {
			if err := os.Chtimes(path, time.Time{}, time.Unix(1, 0)); err != nil {
				t.Fatal(err)
			}
		},
		"made read-only": func() {
			if err := os.Chmod(path, 0o400); err != nil {
				t.Fatal(err)
			}
		},
	} {
		was := identify()
		time.Sleep(20 * time.Millisecond) // the file system's clock ticks
		act()
		if now := identify(); now == was || now.EqualsStored(was) {
			t.Errorf("%s: it is still %+v", name, now)
		}
	}
	if _, err := identity.OfPath(path + "x"); err == nil {
		t.Error("a file that is not there has an identity")
	}
}

func TestTable(t *testing.T) {
	files := func(inode uint64) []identity.File {
		return []identity.File{{Device: 1, Inode: inode, Size: 3, Modified: 4, Changed: 5}}
	}
	var table identity.Table
	digest, other := millrace.Digest{1}, millrace.Digest{2}
	if !table.Add("a", digest, 0, identity.Seen{Host: "h", Files: files(7)}) ||
		table.Add("a", digest, 0, identity.Seen{Host: "h", Files: files(7)}) {
		t.Fatal("want the first identity to be new, and the same again not")
	}
	table.Add("a", digest, 9, identity.Seen{Host: "h", Files: files(8)})
	for i := range 20 {
		table.Add("b", digest, 0, identity.Seen{Host: string(rune('a' + i)), Files: files(uint64(i))})
	}
	blob := table.Encode()
	again, err := identity.Decode(blob)
	if err != nil || !bytes.Equal(again.Encode(), blob) {
		t.Fatalf("it is not read as it was written: %v", err)
	}
	e, ok := again.Find("a", digest)
	moved := files(8)
	moved[0].Device = 99
	if !ok || e.Sample != 9 || !e.Knows(moved) || e.Knows(files(7)) {
		t.Fatalf("got %+v, %v", e, ok)
	}
	if _, ok := e.On("h"); !ok {
		t.Error("the host is forgotten")
	}
	if _, ok := e.On("elsewhere"); ok {
		t.Error("a host without a table has an identity")
	}
	if _, ok := again.Find("a", other); ok {
		t.Error("a file with another digest is found")
	}
	if e, _ := again.Find("b", digest); len(e.Seen) != 8 || !e.Knows(files(19)) || e.Knows(files(0)) {
		t.Errorf("got %d identities", len(e.Seen))
	}
	for n := range blob {
		if _, err := identity.Decode(blob[:n]); err == nil {
			t.Fatalf("%d of %d bytes are a table", n, len(blob))
		}
	}
}
