package index_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"millrace"
	"millrace/sources/facts/index"
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

func save(t *testing.T, s *index.Store, shard millrace.Digest, kind string, blob []byte) {
	t.Helper()
	if err := errors.Join(s.Save(shard, kind, blob), s.Flush()); err != nil {
		t.Fatal(err)
	}
}

func TestBlobs(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "[here]")
	s := open(t, dir, nil)
	early := open(t, dir, nil)
	blob := bytes.Repeat([]byte("index "), 1000)
	if _, ok := s.Load(shard, "lines"); ok {
		t.Fatal("loaded a blob that was never saved")
	}
	for i, b := range [][]byte{blob, {}, blob[:7]} {
		save(t, s, shard, "lines", b)
		for range 2 {
			if got, ok := s.Load(shard, "lines"); !ok || !bytes.Equal(got, b) {
				t.Fatalf("got %d bytes, %v, want %d", len(got), ok, len(b))
			}
		}
		if got, ok := open(t, dir, nil).Load(shard, "lines"); !ok || !bytes.Equal(got, b) {
			t.Fatalf("another store got %d bytes, %v, want %d", len(got), ok, len(b))
		}
		if got, ok := early.Load(shard, "lines"); i == 0 && (!ok || !bytes.Equal(got, b)) {
			t.Fatalf("a store that was opened before got %d bytes, %v, want %d", len(got), ok, len(b))
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

// TestSavedIsLoadedAtOnce: a blob that waits for its batch is loaded, and reaches the disk when the store is closed.
func TestSavedIsLoadedAtOnce(t *testing.T) {
	dir := t.TempDir()
	s, err := index.Open(dir, index.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		d := millrace.Digest{byte(i)}
		if err := s.Save(d, "lines", []byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
		if got, ok := s.Load(d, "lines"); !ok || !bytes.Equal(got, []byte{byte(i)}) {
			t.Fatalf("got %v, %v", got, ok)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, nil)
	for i := range 100 {
		if got, ok := s.Load(millrace.Digest{byte(i)}, "lines"); !ok || !bytes.Equal(got, []byte{byte(i)}) {
			t.Fatalf("got %v, %v", got, ok)
		}
	}
}

// TestDamagedLog: with one flipped bit, or a cut, every blob is the right one or absent. Damage inside one record costs
// that record alone. Saving again heals it, also for a further store.
// Goroutines of one process load, save and flush at once. The race detector judges it.
func TestLoadsDuringWrites(t *testing.T) {
	s := open(t, t.TempDir(), nil)
	var all sync.WaitGroup
	for worker := range byte(4) {
		all.Go(func() {
			for n := range byte(50) {
				k, blob := millrace.Digest{worker, n}, []byte{worker, n}
				if err := errors.Join(s.Save(k, "kind", blob), s.Flush()); err != nil {
					t.Error(err)
				}
				if got, ok := s.Load(k, "kind"); !ok || !bytes.Equal(got, blob) {
					t.Errorf("shard %d of worker %d: got %v, %v", n, worker, got, ok)
				}
				s.Load(millrace.Digest{worker, n, 1}, "absent")
			}
		})
	}
	all.Wait()
}

func TestDamagedLog(t *testing.T) {
	dir := t.TempDir()
	s, err := index.Open(dir, index.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const blobs = 5
	blob := func(i int) []byte { return bytes.Repeat([]byte{byte('a' + i)}, 3*i+2) }
	for i := range blobs {
		if err := s.Save(millrace.Digest{byte(i)}, "lines", blob(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	path := files(t, dir)[0]
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	loaded := func(s *index.Store, what string) (n int) {
		for i := range blobs {
			got, ok := s.Load(millrace.Digest{byte(i)}, "lines")
			if ok && !bytes.Equal(got, blob(i)) {
				t.Fatalf("%s: loaded %q", what, got)
			}
			if ok {
				n++
			}
		}
		return n
	}
	spoil := func(what string, b []byte, least int) {
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		s, err := index.Open(dir, index.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if n := loaded(s, what); n < least {
			t.Fatalf("%s: %d blobs are loaded, want %d", what, n, least)
		}
		for i := range blobs {
			if err := s.Save(millrace.Digest{byte(i)}, "lines", blob(i)); err != nil {
				t.Fatal(err)
			}
		}
		if n := loaded(s, what); n != blobs {
			t.Fatalf("%s: %d blobs are healed", what, n)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, dir, nil)
		if n := loaded(s, what); n != blobs {
			t.Fatalf("%s: a further store loads %d blobs", what, n)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	const head = 24
	for i := range whole {
		b := bytes.Clone(whole)
		b[i] ^= 1 << (i % 8)
		least := blobs - 1
		if i < head {
			least = 0
		}
		spoil(fmt.Sprintf("byte %d flipped", i), b, least)
		spoil(fmt.Sprintf("cut at %d", i), whole[:i], 0)
	}
	spoil("more bytes", append(bytes.Clone(whole), 0, 1), blobs)
}

// brokenFS fails one kind of call, as a full disk does.
type brokenFS struct {
	index.FS
	fail string
	torn bool // a write that fails writes its first half
}

type brokenFile struct {
	index.File
	fs *brokenFS
}

var errFull = syscall.ENOSPC

func (b *brokenFS) at(call string) error {
	if b.fail == call {
		return errFull
	}
	return nil
}

func (b *brokenFS) Open(path string, make bool) (index.File, error) {
	if err := b.at("create"); err != nil {
		return nil, err
	}
	f, err := b.FS.Open(path, make)
	if err != nil {
		return nil, err
	}
	return brokenFile{f, b}, nil
}

func (b *brokenFS) SyncDir(dir string) error { return b.at("syncdir") }

func (f brokenFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.fs.at("write"); err != nil {
		n := 0
		if f.fs.torn {
			n, _ = f.File.WriteAt(p[:len(p)/2], off)
		}
		return n, err
	}
	return f.File.WriteAt(p, off)
}

func (f brokenFile) Reserve(from, to int64) error {
	return errors.Join(f.fs.at("reserve"), f.File.Reserve(from, to))
}
func (f brokenFile) Sync() error { return errors.Join(f.fs.at("sync"), f.File.Sync()) }

// TestFullDisk: if any call of a write fails, the error names the disk's, the blob stays in memory, the disk has the
// earlier blob or the new one, and the next batch works.
func TestFullDisk(t *testing.T) {
	for _, call := range []string{"create", "write", "sync"} {
		for _, torn := range []bool{false, true} {
			dir := t.TempDir()
			s, err := index.Open(dir, index.Options{})
			if err != nil {
				t.Fatal(err)
			}
			save(t, s, shard, "lines", []byte("old"))
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			disk := &brokenFS{index.OSFS(), call, torn}
			broken := open(t, dir, disk)
			if err := errors.Join(broken.Save(shard, "lines", []byte("new and longer")), broken.Flush()); !errors.Is(
				err,
				errFull,
			) {
				t.Fatalf("%s: got %v, want the disk's error", call, err)
			}
			if got, ok := broken.Load(shard, "lines"); !ok || string(got) != "new and longer" {
				t.Fatalf("%s: got %q, %v, want the new blob", call, got, ok)
			}
			s = open(t, dir, nil)
			got, ok := s.Load(shard, "lines")
			if !ok || string(got) != "old" && (call != "sync" || string(got) != "new and longer") {
				t.Fatalf("%s: got %q, %v, want the old blob", call, got, ok)
			}
			save(t, s, shard, "blocks", []byte("another"))
			disk.fail = ""
			if err := broken.Flush(); err != nil {
				t.Fatal(err)
			}
			if got, ok := open(t, dir, nil).Load(shard, "lines"); !ok || string(got) != "new and longer" {
				t.Fatalf("%s: got %q, %v after the disk is back", call, got, ok)
			}
		}
	}
	for _, call := range []string{"create", "write", "reserve"} {
		s := open(t, t.TempDir(), &brokenFS{index.OSFS(), call, false})
		if _, err := s.Lengths(shard, transform, 10, true); !errors.Is(err, errFull) {
			t.Fatalf("%s: got %v, want the disk's error", call, err)
		}
	}
	save(t, open(t, t.TempDir(), &brokenFS{index.OSFS(), "syncdir", false}), shard, "lines", nil)
}

// TestDirectoryWithoutWriting: a store reads blobs from a directory that cannot be written.
func TestDirectoryWithoutWriting(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, nil)
	save(t, s, shard, "lines", []byte("kept"))
	if got, ok := open(t, dir, readFS{index.OSFS()}).Load(shard, "lines"); !ok || string(got) != "kept" {
		t.Fatalf("got %q, %v", got, ok)
	}
}

// readFS opens files for reading alone, as on a disk that is mounted so.
type readFS struct{ index.FS }

type readFile struct {
	index.File
	f *os.File
}

func (r readFile) Fd() uintptr { return r.f.Fd() }

func (readFile) WriteAt([]byte, int64) (int, error) { return 0, syscall.EBADF }

func (r readFile) Close() error { return errors.Join(r.File.Close(), r.f.Close()) }

func (r readFS) Open(path string, _ bool) (index.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	whole, err := r.FS.Open(path, false)
	return readFile{whole, f}, err
}

// TestAReadOnlyDirectory: a store on a read-only volume gives its blobs and lengths, keeps new facts in memory, and
// changes no byte of the directory.
func TestAReadOnlyDirectory(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, nil)
	save(t, s, shard, "lines", []byte("kept"))
	l, err := s.Lengths(shard, transform, 3, true)
	if err != nil {
		t.Fatal(err)
	}
	l.Put(1, 7)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before := content(t, dir)
	fixed := open(t, dir, fixedFS{index.OSFS()})
	if got, ok := fixed.Load(shard, "lines"); !ok || string(got) != "kept" || !fixed.IsReadOnly() {
		t.Fatalf("got %q, %v", got, ok)
	}
	if l, err = fixed.Lengths(shard, transform, 3, true); err != nil {
		t.Fatal(err)
	}
	l.Put(2, 9)
	for record, want := range map[uint64]uint32{1: 7, 2: 9} {
		if n, ok := l.Get(record); !ok || n != want {
			t.Errorf("record %d has length %d, %v", record, n, ok)
		}
	}
	if _, err := fixed.Lengths(millrace.Digest{9}, transform, 3, true); !errors.Is(err, index.ErrReadOnly) {
		t.Errorf("lengths that nobody made: %v", err)
	}
	if err := fixed.Save(shard, "more", []byte("new")); err != nil {
		t.Error(err)
	}
	if got, ok := fixed.Load(shard, "more"); !ok || string(got) != "new" {
		t.Errorf("got %q, %v", got, ok)
	}
	if err := fixed.Close(); err != nil {
		t.Error(err)
	}
	if after := content(t, dir); !maps.Equal(before, after) {
		t.Error("the directory changed")
	}
}

// content returns the files of a directory.
func content(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out[e.Name()] = string(b)
	}
	return out
}

// fixedFS is a read-only volume.
type fixedFS struct{ index.FS }

type fixedFile struct{ readFile }

func (fixedFile) IsReadOnly() bool           { return true }
func (fixedFile) Reserve(int64, int64) error { return syscall.EBADF }

func (f fixedFS) Open(path string, make bool) (index.File, error) {
	if make {
		return nil, syscall.EROFS
	}
	file, err := readFS(f).Open(path, false)
	if err != nil {
		return nil, err
	}
	return fixedFile{file.(readFile)}, nil
}

func (fixedFS) Rename(string, string) error { return syscall.EROFS }
func (fixedFS) Remove(string) error         { return syscall.EROFS }

// TestManyShards: a process maps each of the two files once and holds one descriptor of each, for 70,000 shards with
// blobs and lengths.
func TestManyShards(t *testing.T) {
	const shards = 70_000
	dir := t.TempDir()
	s := open(t, dir, nil)
	name := func(i int) millrace.Digest { return millrace.Digest{byte(i), byte(i >> 8), byte(i >> 16), 1} }
	for i := range shards {
		if err := s.Save(name(i), "lines", []byte{byte(i), byte(i >> 8)}); err != nil {
			t.Fatal(err)
		}
		l, err := s.Lengths(name(i), transform, 3, true)
		if err != nil {
			t.Fatal(err)
		}
		l.Put(2, uint32(i))
	}
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	again := open(t, dir, nil)
	for i := range shards {
		for _, s := range []*index.Store{s, again} {
			if got, ok := s.Load(name(i), "lines"); !ok || !bytes.Equal(got, []byte{byte(i), byte(i >> 8)}) {
				t.Fatalf("shard %d: got %v, %v", i, got, ok)
			}
			l, err := s.Lengths(name(i), transform, 3, true)
			if err != nil {
				t.Fatal(err)
			}
			if n, ok := l.Get(2); !ok || n != uint32(i) {
				t.Fatalf("shard %d: got length %d, %v", i, n, ok)
			}
		}
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(maps), dir); n != 4 {
		t.Errorf("two stores have %d mappings, want 4", n)
	}
	descriptors := 0
	for _, fd := range files(t, "/proc/self/fd") {
		if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, dir) {
			descriptors++
		}
	}
	if descriptors != 4 {
		t.Errorf("two stores have %d descriptors, want 4", descriptors)
	}
}

// TestCompaction: a log that is mostly unused is replaced at the next open. Stores that have the old one open go on
// with it, and their news reach the new one.
func TestCompaction(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, nil)
	big := make([]byte, 4<<20)
	for i := range 20 {
		big[0] = byte(i)
		save(t, s, shard, "big", big)
		save(t, s, millrace.Digest{byte(i)}, "lines", []byte{byte(i)})
	}
	l, err := s.Lengths(shard, transform, 3, true)
	if err != nil {
		t.Fatal(err)
	}
	l.Put(1, 5)
	was, ok := s.Load(shard, "big")
	if !ok {
		t.Fatal("the blob is gone")
	}
	check := func(s *index.Store, who string) {
		t.Helper()
		for i := range 20 {
			if got, ok := s.Load(millrace.Digest{byte(i)}, "lines"); !ok || !bytes.Equal(got, []byte{byte(i)}) {
				t.Fatalf("%s: blob %d is %v, %v", who, i, got, ok)
			}
		}
		if got, ok := s.Load(shard, "big"); !ok || !bytes.Equal(got, big) {
			t.Fatalf("%s: the big blob is another, %v", who, ok)
		}
		l, err := s.Lengths(shard, transform, 3, true)
		if n, ok := l.Get(1); err != nil || !ok || n != 5 {
			t.Fatalf("%s: got %d, %v, %v", who, n, ok, err)
		}
	}
	size := func() int64 {
		st, err := os.Stat(filepath.Join(dir, "shards.pack"))
		if err != nil {
			t.Fatal(err)
		}
		return st.Size()
	}
	before := size()
	after := open(t, dir, nil)
	if size() > before/10 {
		t.Fatalf("the log has %d bytes, and had %d", size(), before)
	}
	check(after, "the store that replaced it")
	check(s, "the store with the old log")
	save(t, s, transform, "late", []byte("news"))
	check(s, "the store that followed")
	for who, s := range map[string]*index.Store{"follower": s, "replacer": after, "third": open(t, dir, nil)} {
		if got, ok := s.Load(transform, "late"); !ok || string(got) != "news" {
			t.Errorf("%s: got %q, %v", who, got, ok)
		}
	}
	if !bytes.Equal(was, big) {
		t.Error("a blob of the old log changed under its reader")
	}
}

// TestAgainstAMap: three stores of one directory save, load and open anew in any order, and agree with a map.
func TestAgainstAMap(t *testing.T) {
	for seed := range uint64(8) {
		dir := t.TempDir()
		rng := rand.New(rand.NewPCG(seed, 1))
		want := map[millrace.Digest][]byte{}
		stores := make([]*index.Store, 3)
		for i := range stores {
			stores[i] = open(t, dir, nil)
		}
		for step := range 600 {
			at := rng.IntN(len(stores))
			d := millrace.Digest{byte(rng.IntN(100))}
			switch rng.IntN(5) {
			case 0:
				if want[d] != nil {
					continue // several processes save the same of a shard
				}
				blob := binary.LittleEndian.AppendUint64(bytes.Repeat([]byte{1}, rng.IntN(99)), uint64(step))
				want[d] = blob
				save(t, stores[at], d, "lines", blob)
			case 1:
				if err := stores[at].Close(); err != nil {
					t.Fatal(err)
				}
				stores[at] = open(t, dir, nil)
			default:
				if got, ok := stores[at].Load(d, "lines"); ok != (want[d] != nil) || !bytes.Equal(got, want[d]) {
					t.Fatalf("seed %d, step %d: got %v, %v, want %v", seed, step, got, ok, want[d])
				}
			}
		}
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
				l, err := s.Lengths(shard, transform, 100, true)
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
			}
		})
	}
	wait.Wait()
	l, err := open(t, dir, nil).Lengths(shard, transform, 100, true)
	if err != nil {
		t.Fatal(err)
	}
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
		l, err := s.Lengths(shard, transform, count, true)
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
	}
	empty, err := s.Lengths(transform, transform, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	empty.Put(0, 1)
	if _, ok := empty.Get(0); ok {
		t.Fatal("a shard without records has a length")
	}
}

// TestDamagedLengths: a flipped bit in a word costs that length. In the head it costs all lengths.
func TestDamagedLengths(t *testing.T) {
	dir := t.TempDir()
	const count = 50
	visit := func(act func(l *index.Lengths)) {
		s, err := index.Open(dir, index.Options{})
		if err != nil {
			t.Fatal(err)
		}
		l, err := s.Lengths(shard, transform, count, true)
		if err != nil {
			t.Fatal(err)
		}
		act(l)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	put := func(l *index.Lengths) {
		for r := range uint64(count) {
			l.Put(r, uint32(r)+100)
			l.PutSum(r, uint32(r)+200)
		}
	}
	visit(put)
	path := filepath.Join(dir, "lengths.pack")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(filepath.Join(dir, "shards.pack"))
	if err != nil {
		t.Fatal(err)
	}
	const head, region = 64, 64 + count*16
	for bit := 0; bit < region*8; bit++ {
		if bit > head*8 && bit+6 < region*8 {
			bit += 6 // every seventh bit of the words
		}
		b := bytes.Clone(whole)
		b[bit/8] ^= 1 << (bit % 8)
		err := errors.Join(os.WriteFile(path, b, 0o644), os.WriteFile(filepath.Join(dir, "shards.pack"), log, 0o644))
		if err != nil {
			t.Fatal(err)
		}
		known, sums := 0, 0
		visit(func(l *index.Lengths) {
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
		})
		want := 2*count - 1
		if bit < 24*8 {
			want = 0
		} else if bit < head*8 {
			want = 2 * count
		}
		if known+sums != want {
			t.Fatalf("bit %d: %d lengths and %d checksums are known, want %d", bit, known, sums, want)
		}
	}
	if err := os.WriteFile(path, whole[:100], 0o644); err != nil { // the region is cut off
		t.Fatal(err)
	}
	visit(put)
	visit(func(l *index.Lengths) {
		if n, ok := l.Get(count - 1); !ok || n != count-1+100 {
			t.Fatalf("got %d, %v after a cut", n, ok)
		}
	})
}

func TestSum(t *testing.T) {
	if a, b := index.Sum([]uint32{1, 2, 3}), index.Sum([]uint32{1, 2, 4}); a == b || a != index.Sum([]uint32{1, 2, 3}) {
		t.Errorf("got %d and %d", a, b)
	}
	index.Sum(nil)
}
