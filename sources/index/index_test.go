package index_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"millrace"
	"millrace/sources/index"
)

func open(t *testing.T, dir string, fs index.FS) *index.Store {
	t.Helper()
	s, err := index.Open(dir, index.Options{FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, filepath.Join(dir, e.Name()))
	}
	return out
}

var shard, transform = millrace.Digest{1, 2}, millrace.Digest{3}

func TestBlobs(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "[here]")
	s := open(t, dir, nil)
	blob := bytes.Repeat([]byte("index "), 1000)
	if _, ok := s.Load(shard, "lines"); ok {
		t.Fatal("loaded a blob that was never saved")
	}
	for _, b := range [][]byte{blob, {}, blob[:7]} {
		if err := s.Save(shard, "lines", b); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if got, ok := s.Load(shard, "lines"); !ok || !bytes.Equal(got, b) {
				t.Fatalf("got %d bytes, %v, want %d", len(got), ok, len(b))
			}
		}
		if got, ok := open(t, dir, nil).Load(shard, "lines"); !ok || !bytes.Equal(got, b) {
			t.Fatalf("another store got %d bytes, %v, want %d", len(got), ok, len(b))
		}
	}
	if _, ok := s.Load(shard, "blocks"); ok {
		t.Fatal("kinds are mixed up")
	}
	if _, ok := s.Load(millrace.Digest{1, 3}, "lines"); ok {
		t.Fatal("shards are mixed up")
	}
	if n := len(files(t, dir)); n != 1 {
		t.Fatalf("%d files are left, want 1", n)
	}
}

// TestDamagedBlobs: a blob with one flipped byte or a cut is absent, and saving it again repairs it.
func TestDamagedBlobs(t *testing.T) {
	dir := t.TempDir()
	blob := []byte("a small index")
	if err := open(t, dir, nil).Save(shard, "lines", blob); err != nil {
		t.Fatal(err)
	}
	path := files(t, dir)[0]
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	spoil := func(what string, b []byte) {
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		s, err := index.Open(dir, index.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if got, ok := s.Load(shard, "lines"); ok {
			t.Fatalf("%s: loaded %q", what, got)
		}
		if err := s.Save(shard, "lines", blob); err != nil {
			t.Fatal(err)
		}
		if got, ok := s.Load(shard, "lines"); !ok || string(got) != string(blob) {
			t.Fatalf("%s: not healed: %q, %v", what, got, ok)
		}
	}
	for i := range whole {
		b := bytes.Clone(whole)
		b[i] ^= 0x10
		spoil("a flipped byte", b)
		spoil("a cut", whole[:i])
	}
	spoil("more bytes", append(bytes.Clone(whole), 0))
	// Another shard's name does not load the same bytes.
	s := open(t, dir, nil)
	if err := os.Rename(path, strings.Replace(path, shard.String(), transform.String(), 1)); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.Load(transform, "lines"); ok {
		t.Fatal("loaded another shard's index")
	}
}

// brokenFS fails one kind of call, as a full disk or a crash does.
type brokenFS struct {
	index.FS
	fail string
	dead bool // a crash leaves all files
}

type brokenFile struct {
	index.TempFile
	fs *brokenFS
}

var errFull = syscall.ENOSPC

func (b *brokenFS) at(call string) error {
	if b.fail == call {
		return errFull
	}
	return nil
}

func (b *brokenFS) CreateTemp(dir string) (index.TempFile, error) {
	if err := b.at("create"); err != nil {
		return nil, err
	}
	f, err := b.FS.CreateTemp(dir)
	return brokenFile{f, b}, err
}

func (b *brokenFS) Publish(temp, name string, replace bool) error {
	if err := b.at("publish"); err != nil {
		return err
	}
	return b.FS.Publish(temp, name, replace)
}

func (b *brokenFS) Remove(path string) error {
	if b.dead {
		return errFull
	}
	return b.FS.Remove(path)
}

func (b *brokenFS) SyncDir(dir string) error { return b.at("syncdir") }

func (f brokenFile) Write(p []byte) (int, error) {
	if err := f.fs.at("write"); err != nil {
		n, _ := f.TempFile.Write(p[:len(p)/2])
		return n, err
	}
	return f.TempFile.Write(p)
}

func (f brokenFile) Reserve(n int64) error {
	return errors.Join(f.fs.at("reserve"), f.TempFile.Reserve(n))
}
func (f brokenFile) Sync() error { return errors.Join(f.fs.at("sync"), f.TempFile.Sync()) }

// TestFullDiskAndCrash: if any call of a write fails, the earlier blob stays, stale files go, and the next save works.
func TestFullDiskAndCrash(t *testing.T) {
	for _, call := range []string{"create", "write", "sync", "publish"} {
		for _, dead := range []bool{false, true} {
			dir := t.TempDir()
			if err := open(t, dir, nil).Save(shard, "lines", []byte("old")); err != nil {
				t.Fatal(err)
			}
			broken := open(t, dir, &brokenFS{index.OSFS(), call, dead})
			if err := broken.Save(shard, "lines", []byte("new and longer")); !errors.Is(err, errFull) {
				t.Fatalf("%s: got %v, want the disk's error", call, err)
			}
			s := open(t, dir, nil)
			if got, ok := s.Load(shard, "lines"); !ok || string(got) != "old" {
				t.Fatalf("%s: got %q, %v, want the old blob", call, got, ok)
			}
			if err := s.Save(shard, "lines", []byte("new")); err != nil {
				t.Fatal(err)
			}
			if left := files(t, dir); len(left) != 1 {
				t.Fatalf("%s, crash %v: files left behind: %v", call, dead, left)
			}
		}
	}
	for _, call := range []string{"create", "write", "reserve", "publish"} {
		s := open(t, t.TempDir(), &brokenFS{index.OSFS(), call, false})
		if _, err := s.Lengths(shard, transform, 10); !errors.Is(err, errFull) {
			t.Fatalf("%s: got %v, want the disk's error", call, err)
		}
	}
	if err := open(t, t.TempDir(), &brokenFS{index.OSFS(), "syncdir", false}).Save(shard, "lines", nil); err != nil {
		t.Fatalf("a directory that cannot be synced: %v", err)
	}
}

func TestOpenFailsWithTheCure(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := index.Open(filepath.Join(file, "d"), index.Options{}); err == nil ||
		!strings.Contains(err.Error(), "index_dir") {
		t.Fatalf("got %v", err)
	}
}

// TestStoresShareADirectory: several stores save, load and put at once, as processes do.
func TestStoresShareADirectory(t *testing.T) {
	dir := t.TempDir()
	var wait sync.WaitGroup
	for g := range 4 {
		wait.Go(func() {
			s, err := index.Open(dir, index.Options{})
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			blob := bytes.Repeat([]byte{7}, 5000)
			for i := range 20 {
				if err := s.Save(shard, "lines", blob); err != nil {
					t.Error(err)
				}
				if got, ok := s.Load(shard, "lines"); !ok || !bytes.Equal(got, blob) {
					t.Errorf("got %d bytes, %v", len(got), ok)
				}
				l, err := s.Lengths(shard, transform, 100)
				if err != nil {
					t.Error(err)
					return
				}
				for r := range uint64(100) {
					if r%4 == uint64(g) {
						l.Put(r, uint32(r*3))
					}
					if n, ok := l.Get(r); ok && n != uint32(r*3) {
						t.Errorf("record %d has %d tokens in round %d", r, n, i)
					}
				}
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	l, err := open(t, dir, nil).Lengths(shard, transform, 100)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for r := range uint64(100) {
		if n, ok := l.Get(r); !ok || n != uint32(r*3) {
			t.Errorf("record %d: got %d, %v", r, n, ok)
		}
	}
	if n := len(files(t, dir)); n != 2 {
		t.Errorf("%d files, want 2", n)
	}
}

func TestLengths(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, nil)
	rng := rand.New(rand.NewPCG(9, 10))
	const count, bad = 1000, 7
	want := make(map[uint64]uint32)
	for range 3 {
		l, err := s.Lengths(shard, transform, count)
		if err != nil {
			t.Fatal(err)
		}
		for r := range uint64(count) {
			n, ok := l.Get(r)
			if w, known := want[r]; ok != known || n != w {
				t.Fatalf("record %d: got %d, %v, want %d, %v", r, n, ok, w, known)
			}
		}
		put := func(r uint64, n uint32) {
			l.Put(r, n)
			if _, known := want[r]; !known { // the first one stays
				want[r] = n
			}
			l.PutBad(r, 100)
		}
		l.Put(count-1, 1<<32-2)
		put(0, 0)
		put(count-1, 1<<32-3)
		for range 300 {
			if r := rng.Uint64N(count); r != bad {
				put(r, rng.Uint32N(1<<20))
			}
		}
		l.PutBad(bad, 100)
		l.PutBad(count, 100)
		if _, ok := l.Get(bad); ok || !l.Bad(bad, 100) || l.Bad(bad, 101) || l.Bad(0, 100) || l.Bad(count, 100) {
			t.Fatal("a bad record has a length, or is bad under another limit too")
		}
		l.Put(count, 5)
		l.Put(1<<63, 5)
		if _, ok := l.Get(count); ok {
			t.Fatal("a record that is not there has a length")
		}
		if err := errors.Join(l.Close(), l.Close()); err != nil {
			t.Fatal(err)
		}
		l.Put(1, 1)
		if _, ok := l.Get(0); ok {
			t.Fatal("a closed store knows a length")
		}
	}
	empty, err := s.Lengths(transform, transform, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := empty.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedLengths: a flipped bit in a word costs that length. In the head or the size it costs the whole file.
func TestDamagedLengths(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, nil)
	const count = 50
	put := func() {
		l, err := s.Lengths(shard, transform, count)
		if err != nil {
			t.Fatal(err)
		}
		for r := range uint64(count) {
			l.Put(r, uint32(r)+100)
			l.PutSum(r, uint32(r)+200)
		}
		l.Close()
	}
	put()
	path := files(t, dir)[0]
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for bit := range len(whole) * 8 {
		b := bytes.Clone(whole)
		b[bit/8] ^= 1 << (bit % 8)
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		l, err := s.Lengths(shard, transform, count)
		if err != nil {
			t.Fatal(err)
		}
		known, sums := 0, 0
		for r := range uint64(count) {
			if n, ok := l.Get(r); ok {
				known++
				if n != uint32(r)+100 {
					t.Fatalf("bit %d: record %d has %d tokens", bit, r, n)
				}
			}
			if sum, ok := l.Sum(r); ok {
				sums++
				if sum != uint32(r)+200 {
					t.Fatalf("bit %d: record %d has checksum %d", bit, r, sum)
				}
			}
		}
		l.Close()
		want := 2*count - 1
		if bit < 64*8 {
			want = 0
		}
		if known+sums != want {
			t.Fatalf("bit %d: %d lengths and %d checksums are known, want %d", bit, known, sums, want)
		}
		if bit < 64*8 {
			put()
		}
	}
	if err := os.WriteFile(path, whole[:100], 0o644); err != nil {
		t.Fatal(err)
	}
	put()
	if again, err := os.ReadFile(path); err != nil || !bytes.Equal(again, whole) {
		t.Fatalf("a cut file was not replaced: %d bytes, %v", len(again), err)
	}
}

// TestOldLengths: a length store of the first release is read. Its records have no checksums until they are put.
func TestOldLengths(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, nil)
	old, err := s.Answers(shard, transform, 10) // the layout of the first release
	if err != nil {
		t.Fatal(err)
	}
	old.Put(3, 33)
	old.PutBad(4, 100)
	old.PutSum(3, 5) // passed over
	if _, ok := old.Sum(3); ok {
		t.Fatal("a store of one word has a checksum")
	}
	old.Close()
	l, err := s.Lengths(shard, transform, 10)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	n, ok := l.Get(3)
	if _, sum := l.Sum(3); !ok || n != 33 || sum || !l.Bad(4, 100) || l.Bad(4, 99) {
		t.Fatalf("got %d, %v, checksum known: %v", n, ok, sum)
	}
	if _, ok := l.Get(5); ok {
		t.Fatal("a length is known that the old store did not have")
	}
	for range 2 {
		l.PutSum(3, 77)
		if sum, ok := l.Sum(3); !ok || sum != 77 {
			t.Fatalf("got checksum %d, %v", sum, ok)
		}
		if l, err = s.Lengths(shard, transform, 10); err != nil {
			t.Fatal(err)
		}
	}
	l.PutSum(3, 78) // the first one stays
	if sum, _ := l.Sum(3); sum != 77 {
		t.Fatalf("got checksum %d", sum)
	}
}

func TestSum(t *testing.T) {
	if a, b := index.Sum([]uint32{1, 2, 3}), index.Sum([]uint32{1, 2, 4}); a == b || a != index.Sum([]uint32{1, 2, 3}) {
		t.Errorf("got %d and %d", a, b)
	}
	index.Sum(nil)
}
