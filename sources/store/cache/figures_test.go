package cache_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"millrace/sources/store/cache"
)

// TestFiguresCountReads: the first pass reads every document from its shard, the second one from the cache.
func TestFiguresCountReads(t *testing.T) {
	spec, _ := corpus(t, 2, 300)
	dir := t.TempDir()
	store := openStore(t, dir, 1<<20)
	src := openSource(t, spec, store)
	stream(t, src)
	before := store.Figures()
	if before.Hits != 0 || before.Misses < 600 || before.Filled != 0 || before.Held != 0 || before.Limit != 1<<20 {
		t.Errorf("without entries: %+v", before)
	}
	fillAll(t, store, src)
	stream(t, openSource(t, spec, store))
	after := store.Figures()
	if after.Hits < 600 || after.Misses != before.Misses || after.Filled != 2 || after.Held != dirSize(t, dir) {
		t.Errorf("with all entries: %+v, and the files have %d bytes", after, dirSize(t, dir))
	}
}

// TestEntriesAreCountedOnce: a process that saw no entry a moment ago does not write the entry of another one again.
func TestEntriesAreCountedOnce(t *testing.T) {
	spec, _ := corpus(t, 2, 300)
	dir := t.TempDir()
	late := openStore(t, dir, 1<<20)
	src := openSource(t, spec, late)
	stream(t, src) // it sees no entry
	first := openStore(t, dir, 1<<20)
	fillAll(t, first, openSource(t, spec, first))
	for _, got := range fillAll(t, late, src) {
		if got != cache.Present {
			t.Errorf("the late process filled an entry: %v", got)
		}
	}
	if got := late.Figures(); got.Held != dirSize(t, dir) {
		t.Errorf("the figures have %d bytes, the files %d", got.Held, dirSize(t, dir))
	}
}

// TestFiguresCountRemovals: evicted and damaged entries are counted apart, and so are shards without room.
func TestFiguresCountRemovals(t *testing.T) {
	spec, _ := corpus(t, 4, 2000)
	dir := t.TempDir()
	store := openStore(t, dir, 1<<30)
	fillAll(t, store, openSource(t, spec, store))
	size := dirSize(t, dir) / 4
	for _, path := range entries(t, dir) {
		old := time.Now().Add(-time.Hour)
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
	}
	small := openStore(t, dir, 2*size+size/2)
	other, _ := corpus(t, 4, 1900)
	src := openSource(t, other, small)
	fillAll(t, small, src)
	got := small.Figures()
	if got.Evicted != 4 || got.Damaged != 0 || got.LeftOut != 2 || got.Filled != 2 {
		t.Errorf("a cache for two of eight entries: %+v", got)
	}
	if err := os.Truncate(entries(t, dir)[0], size/2); err != nil {
		t.Fatal(err)
	}
	stream(t, src)
	if got := small.Figures(); got.Damaged != 1 || got.Evicted != 4 {
		t.Errorf("after a damaged entry: %+v", got)
	}
}

// TestFiguresTellAFullDisk: the figures have the disk's error and the shards without an entry.
func TestFiguresTellAFullDisk(t *testing.T) {
	spec, _ := corpus(t, 2, 300)
	dir := filepath.Join(t.TempDir(), "tokens")
	store, err := cache.Open(cache.Config{Dir: dir, Limit: 1 << 30, FS: fullFS{cache.OSFS()}})
	if err != nil {
		t.Fatal(err)
	}
	fillAll(t, store, openSource(t, spec, store))
	got := store.Figures()
	if got.LeftOut != 2 || got.Filled != 0 || !strings.Contains(got.Trouble, syscall.ENOSPC.Error()) {
		t.Errorf("on a full disk: %+v", got)
	}
	if got.Held != dirSize(t, dir) {
		t.Errorf("the figures have %d bytes, the files %d", got.Held, dirSize(t, dir))
	}
}

// fullFS is a disk without room.
type fullFS struct{ cache.FS }

type fullFile struct{ cache.File }

func (f fullFS) Create(path string) (cache.File, error) {
	file, err := f.FS.Create(path)
	return fullFile{file}, err
}

func (f fullFile) Reserve(int64) error { return syscall.ENOSPC }
