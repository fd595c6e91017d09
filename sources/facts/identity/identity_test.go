package identity_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"millrace"
	"millrace/sources/facts/identity"
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

func files(inode uint64) []identity.File {
	return []identity.File{{Device: 1, Inode: inode, Size: 3, Modified: 4, Changed: 5}}
}

func TestEntry(t *testing.T) {
	e := identity.Entry{Digest: millrace.Digest{1}}
	seven := identity.Seen{Host: "h", Files: files(7)}
	if !e.Add(0, seven) || e.Add(0, seven) || !e.IsSeen(seven) {
		t.Fatal("want the first identity to be new, and the same again not")
	}
	e.Add(9, identity.Seen{Host: "h", Files: files(8)})
	moved := files(8)
	moved[0].Device = 99
	if e.Sample != 9 || !e.Knows(moved) || e.Knows(files(7)) || e.IsSeen(identity.Seen{Host: "h", Files: moved}) ||
		e.IsSeen(identity.Seen{Host: "g", Files: files(8)}) {
		t.Fatalf("got %+v", e)
	}
	if !e.Add(0, identity.Seen{Host: "h", Files: moved}) {
		t.Error("a file on another device is not remembered")
	}
	for i := range 20 {
		e.Add(0, identity.Seen{Host: string(rune('a' + i)), Files: files(uint64(i))})
		e.AddFacts(identity.Facts{Settings: uint64(i), Count: 5, Counted: true, Seekable: i%2 == 0})
	}
	if len(e.Seen) != 8 || !e.Knows(files(19)) || e.Knows(files(0)) || len(e.Facts) != 4 {
		t.Errorf("got %d identities and facts under %d settings", len(e.Seen), len(e.Facts))
	}
	if _, ok := e.On("t"); !ok {
		t.Error("the host is forgotten")
	}
	if _, ok := e.On("elsewhere"); ok {
		t.Error("a host without an entry has an identity")
	}
	f, ok := e.FactsOf(18)
	if want := (identity.Facts{Settings: 18, Count: 5, Counted: true, Seekable: true}); !ok || f != want {
		t.Errorf("got %+v, %v", f, ok)
	}
	if _, ok := e.FactsOf(3); ok {
		t.Error("facts that were dropped are found")
	}
	blob := e.Encode()
	again, err := identity.Decode(blob)
	if err != nil || !reflect.DeepEqual(*again, e) || !bytes.Equal(again.Encode(), blob) {
		t.Fatalf("it is not read as it was written: %v", err)
	}
	here := identity.Seen{Host: "t", Files: files(19)}
	if digest, f, ok := identity.Match(blob, here, 18); !ok || digest != e.Digest || f.Settings != 18 || f.Count != 5 {
		t.Errorf("got %v, %+v, %v", digest, f, ok)
	}
	for _, other := range []identity.Seen{
		{Host: "s", Files: files(19)},
		{Host: "t", Files: moved},
		{Host: "t"},
		{Host: "t", Files: append(files(19), files(1)...)},
	} {
		if _, _, ok := identity.Match(blob, other, 18); ok {
			t.Errorf("%+v matches", other)
		}
	}
	if _, _, ok := identity.Match(blob, here, 3); ok {
		t.Error("facts that were dropped match")
	}
	for n := range blob {
		if _, err := identity.Decode(blob[:n]); err == nil {
			t.Fatalf("%d of %d bytes are an entry", n, len(blob))
		}
		if _, _, ok := identity.Match(blob[:n], here, 18); ok {
			t.Fatalf("%d of %d bytes match", n, len(blob))
		}
	}
}

// TestTableOfAnEarlierRelease: the entries of a directory are read in the form in which they were kept together.
func TestTableOfAnEarlierRelease(t *testing.T) {
	blob := append([]byte("MRFILES1"), 1, 1, 'a')
	blob = append(blob, make([]byte, 15)...)
	blob = append(blob, 1)
	le := binary.LittleEndian
	blob = append(le.AppendUint64(blob, 9), 1, 1, 'h', 1)
	for _, v := range []uint64{1, 7, 3, 4, 5} {
		blob = le.AppendUint64(blob, v)
	}
	table, err := identity.DecodeTable(blob)
	if e := table["a"]; err != nil || e.Sample != 9 || e.Digest != (millrace.Digest{15: 1}) ||
		!e.IsSeen(identity.Seen{Host: "h", Files: files(7)}) {
		t.Fatalf("got %+v, %v", table, err)
	}
	for n := range blob {
		if _, err := identity.DecodeTable(blob[:n]); err == nil {
			t.Fatalf("%d of %d bytes are a table", n, len(blob))
		}
	}
}
