package shared_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"millrace/text/tokenize/internal/shared"
)

type slot struct {
	key uint64
	id  uint32
}

// tables are those of one process.
type tables struct {
	words []uint32
	slots []slot
	none  []uint64
	bytes []byte
}

func newTables() *tables {
	return &tables{words: []uint32{1, 2, 3}, slots: []slot{{4, 5}, {6, 7}}, bytes: []byte("text")}
}

func (t *tables) share(dir string) error {
	return shared.Map(dir, shared.Of(&t.words), shared.Of(&t.slots), shared.Of(&t.none), shared.Of(&t.bytes))
}

// check fails unless the tables have their content at another place than before.
func (t *tables) check(tt *testing.T, before *uint32) {
	tt.Helper()
	want := newTables()
	if !slices.Equal(t.words, want.words) || !slices.Equal(t.slots, want.slots) || t.none != nil ||
		string(t.bytes) != string(want.bytes) {
		tt.Errorf("mapped tables are %+v, want %+v", t, want)
	}
	if unsafe.SliceData(t.words) == before {
		tt.Error("the tables did not move")
	}
}

func only(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || !strings.HasSuffix(entries[0].Name(), ".tables") {
		t.Fatalf("the directory has %v, %v; want one file of tables", entries, err)
	}
	return filepath.Join(dir, entries[0].Name())
}

// TestOneFile: processes that begin at once end up with one file, and with equal tables.
func TestOneFile(t *testing.T) {
	dir := t.TempDir()
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			own := newTables()
			before := unsafe.SliceData(own.words)
			if err := own.share(dir); err != nil {
				t.Error(err)
			}
			own.check(t, before)
		})
	}
	group.Wait()
	first, err := os.Stat(only(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	if err := newTables().share(dir); err != nil {
		t.Fatal(err)
	}
	second, err := os.Stat(only(t, dir))
	if err != nil || !os.SameFile(first, second) {
		t.Errorf("a later process wrote the file again: %v", err)
	}
	other := newTables()
	other.words[1] = 9
	if err := other.share(dir); err != nil || other.words[1] != 9 {
		t.Errorf("other tables are mapped as %v, %v", other.words, err)
	}
}

// TestDamagedFile: a file with other content than its name says is replaced.
func TestDamagedFile(t *testing.T) {
	dir := t.TempDir()
	if err := newTables().share(dir); err != nil {
		t.Fatal(err)
	}
	path := only(t, dir)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	flipped := slices.Clone(good)
	flipped[0] ^= 1
	for _, damaged := range [][]byte{flipped, good[:len(good)-1], nil} {
		if err := os.WriteFile(path+"-", damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+"-", path); err != nil { // mappings of the old file stay whole
			t.Fatal(err)
		}
		own := newTables()
		before := unsafe.SliceData(own.words)
		if err := own.share(dir); err != nil {
			t.Fatal(err)
		}
		own.check(t, before)
		if now, err := os.ReadFile(path); err != nil || string(now) != string(good) {
			t.Errorf("the damaged file has %d bytes after a repair, %v", len(now), err)
		}
	}
}

// TestNoDirectory: without a place for the file, a process keeps its own tables.
func TestNoDirectory(t *testing.T) {
	own := newTables()
	before := unsafe.SliceData(own.words)
	if err := own.share(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Fatal("a directory that does not exist is no error")
	}
	if unsafe.SliceData(own.words) != before || own.words[1] != 2 {
		t.Error("the tables moved")
	}
}
