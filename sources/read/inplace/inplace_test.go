package inplace

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"millrace/sources"
	"millrace/sources/facts/identity"
)

// file writes a file with an old time of modification, so that a change gives it another identity.
func file(t *testing.T, path, content string) identity.File {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	id, err := sources.OSFS().Identity(path)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// read reads two bytes from each offset.
func read(t *testing.T, r *Reader, path string, id identity.File, offsets ...uint64) (string, error) {
	t.Helper()
	got := make([]byte, 2*len(offsets))
	err := r.Read(t.Context(), path, id, offsets, func(k int) []byte { return got[2*k : 2*k+2] })
	return string(got), err
}

func newReader(t *testing.T, fs sources.FS, most int) *Reader {
	r := New(fs, most)
	t.Cleanup(func() {
		if err := r.Close(); err != nil || r.files.Count() != 0 {
			t.Errorf("%d files are open after Close: %v", r.files.Count(), err)
		}
	})
	return r
}

// TestAChangedFileIsNotRead: whatever happened to the file, before it was opened or after.
func TestAChangedFileIsNotRead(t *testing.T) {
	for name, c := range map[string]struct {
		change func(path string) error
		isGood bool // an open file that only lost its name is the same
	}{
		"written to": {change: func(path string) error {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err == nil {
				_, err = f.WriteAt([]byte("xx"), 2)
				err = errors.Join(err, f.Close())
			}
			return err
		}},
		"cut short": {change: func(path string) error { return os.Truncate(path, 5) }},
		"touched":   {change: func(path string) error { return os.Chtimes(path, time.Now(), time.Now()) }},
	} {
		for _, isOpen := range []bool{false, true} {
			path := filepath.Join(t.TempDir(), "a.bin")
			id := file(t, path, "abcdefgh")
			r := newReader(t, sources.OSFS(), 4)
			if isOpen {
				if got, err := read(t, r, path, id, 4, 0); err != nil || got != "efab" {
					t.Fatalf("%q: %v", got, err)
				}
			}
			if err := c.change(path); err != nil {
				t.Fatal(err)
			}
			if _, err := read(t, r, path, id, 0, 4); err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("%s, open %v: %v", name, isOpen, err)
			}
		}
	}
}

// TestAReplacedFileIsAnotherOne: a reader that has the old file open goes on with it, and a new reader refuses the new.
func TestAReplacedFileIsAnotherOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.bin")
	id := file(t, path, "abcdefgh")
	file(t, path+".new", "ABCDEFGH")
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	if _, err := read(t, newReader(t, sources.OSFS(), 4), path, id, 0); err == nil ||
		!strings.Contains(err.Error(), "another one than the loader has") {
		t.Error(err)
	}
	now, err := sources.OSFS().Identity(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := read(t, newReader(t, sources.OSFS(), 4), path, now, 0); err != nil || got != "AB" {
		t.Errorf("%q: %v", got, err)
	}
}

// TestOpenFilesAreBounded: with any number of files.
func TestOpenFilesAreBounded(t *testing.T) {
	dir := t.TempDir()
	r := newReader(t, sources.OSFS(), 3)
	for i := range 20 {
		path := filepath.Join(dir, fmt.Sprint(i))
		id := file(t, path, fmt.Sprintf("%08d", i))
		for range 2 {
			if got, err := read(t, r, path, id, 6); err != nil || got != fmt.Sprintf("%02d", i) {
				t.Fatalf("file %d: %q: %v", i, got, err)
			}
		}
		if n := r.files.Count(); n > 3 || len(r.entries) > 3 {
			t.Fatalf("%d files are open, %d are known", n, len(r.entries))
		}
	}
}

// slowFS takes a millisecond for each read.
type slowFS struct {
	sources.FS
	now, most atomic.Int64 // reads that wait; the most of them
}

type slowFile struct {
	sources.OpenFile
	fs *slowFS
}

func (f *slowFS) Open(path string) (sources.OpenFile, error) {
	o, err := f.FS.Open(path)
	return &slowFile{o, f}, err
}

func (f *slowFile) ReadAt(p []byte, off int64) (int, error) {
	f.fs.most.Store(max(f.fs.most.Load(), f.fs.now.Add(1)))
	defer f.fs.now.Add(-1)
	time.Sleep(time.Millisecond)
	return f.OpenFile.ReadAt(p, off)
}

// TestSlowReadsWaitSideBySide, and every byte comes to its place.
func TestSlowReadsWaitSideBySide(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.bin")
	var content bytes.Buffer
	for i := range 200 {
		fmt.Fprintf(&content, "%03d.", i)
	}
	id := file(t, path, content.String())
	var offsets []uint64
	want := ""
	for i := range 150 {
		at := 4 * (i * 37 % 200)
		offsets, want = append(offsets, uint64(at)), want+content.String()[at:at+2]
	}
	fs := &slowFS{FS: sources.OSFS()}
	got, err := read(t, newReader(t, fs, 0), path, id, offsets...)
	if err != nil || got != want {
		t.Fatalf("%q, want %q: %v", got, want, err)
	}
	if n := fs.most.Load(); n < 2 || n > together {
		t.Errorf("%d reads waited side by side, want 2 to %d", n, together)
	}
}
