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
	"testing"

	"millrace"
	"millrace/sources/facts/index"
)

// cutFS passes all calls on and cuts the power before each. It records the state that the disk must have by then, and
// the states that it may have.
type cutFS struct {
	index.FS
	dir   string
	disk  diskImage
	acked int // calls that had returned by then
	cuts  []powerCut
}

// powerCut is a disk at one moment.
type powerCut struct {
	disk  diskImage
	acked int
	where string
}

// diskImage is a folder whose sync is independent of its files' syncs. names maps each name to its file as of the
// folder's last sync; later has the changes of names since.
type diskImage struct {
	files map[int]*image
	names map[string]int
	later []naming
	next  int
}

// image is a file: its content, and how much of it is synced.
type image struct{ written, synced []byte }

// naming is a name that appeared, changed its file, or went (-1).
type naming struct {
	name string
	file int
}

func (d diskImage) clone() diskImage {
	files := map[int]*image{}
	for k, f := range d.files {
		files[k] = &image{bytes.Clone(f.written), bytes.Clone(f.synced)}
	}
	return diskImage{files, maps.Clone(d.names), append([]naming{}, d.later...), d.next}
}

// lookup returns the current file of a name.
func (d *diskImage) lookup(name string) int {
	for i := len(d.later) - 1; i >= 0; i-- {
		if d.later[i].name == name {
			return d.later[i].file
		}
	}
	if f, ok := d.names[name]; ok {
		return f
	}
	return -1
}

func (c *cutFS) cut(format string, args ...any) {
	c.cuts = append(c.cuts, powerCut{c.disk.clone(), c.acked, fmt.Sprintf(format, args...)})
}

func (c *cutFS) name(name string, file int) {
	c.disk.later = append(c.disk.later, naming{filepath.Base(name), file})
}

func (c *cutFS) Open(path string, make bool) (index.File, error) {
	c.cut("before a file is opened")
	f, err := c.FS.Open(path, make)
	if err != nil {
		return nil, err
	}
	id := c.disk.lookup(filepath.Base(path))
	if id < 0 {
		c.disk.next++
		id = c.disk.next
		c.disk.files[id] = &image{}
		c.name(path, id)
	}
	return cutFile{f, c, id}, nil
}

func (c *cutFS) Rename(from, to string) error {
	c.cut("before %s is moved into place", filepath.Base(to))
	c.name(to, c.disk.lookup(filepath.Base(from)))
	c.name(from, -1)
	return c.FS.Rename(from, to)
}

func (c *cutFS) Remove(path string) error {
	c.cut("before a file is removed")
	c.name(path, -1)
	return c.FS.Remove(path)
}

func (c *cutFS) SyncDir(dir string) error {
	c.cut("before the folder is synced")
	for _, n := range c.disk.later {
		c.disk.names[n.name] = n.file
	}
	c.disk.later = nil
	return c.FS.SyncDir(dir)
}

type cutFile struct {
	index.File
	fs *cutFS
	id int
}

// extend makes a file's content at least size bytes long.
func (f *image) extend(size int64) {
	if n := size - int64(len(f.written)); n > 0 {
		f.written = append(f.written, make([]byte, n)...)
	}
}

func (f cutFile) WriteAt(p []byte, off int64) (int, error) {
	f.fs.cut("before a write of %d bytes", len(p))
	file := f.fs.disk.files[f.id]
	file.extend(off + int64(len(p)))
	copy(file.written[off:], p)
	return f.File.WriteAt(p, off)
}

func (f cutFile) Reserve(from, to int64) error {
	f.fs.cut("before %d bytes are reserved", to-from)
	f.fs.disk.files[f.id].extend(to)
	return f.File.Reserve(from, to)
}

func (f cutFile) Sync() error {
	f.fs.cut("before a file is synced")
	file := f.fs.disk.files[f.id]
	file.synced = bytes.Clone(file.written)
	return f.File.Sync()
}

// mapped records the content of a file that is written through a mapping, without a sync. Any of its words may reach
// the disk.
func (c *cutFS) mapped(t *testing.T) {
	for name, id := range c.disk.names {
		if id < 0 {
			continue
		}
		b, err := os.ReadFile(filepath.Join(c.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		c.disk.files[id].written = b
	}
	c.cut("with lengths in memory")
}

// restore writes a disk on which a part of the unsynced blocks, and each unsynced name by itself, has arrived.
func (d *diskImage) restore(t *testing.T, dir string, kept int, rng *rand.Rand) {
	names := maps.Clone(d.names)
	for _, n := range d.later {
		if rng.IntN(100) < kept {
			names[n.name] = n.file
		}
	}
	for name, id := range names {
		if id < 0 {
			continue
		}
		f := d.files[id]
		size := len(f.synced)
		if rng.IntN(100) < kept {
			size = len(f.written)
		}
		b := make([]byte, size)
		copy(b, f.synced)
		const block = 24 // not a power of two, so that it may end inside a word
		for at := 0; at < size; at += block {
			if rng.IntN(100) < kept {
				copy(b[at:min(at+block, size)], f.written[min(at, len(f.written)):min(at+block, size, len(f.written))])
			}
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

const crashRecords = 40

func lengthOf(record uint64) uint32 { return uint32(record*record + 3) }

// TestPowerCutAnywhere cuts the power before every call of a history of blobs and lengths. On each disk that may be
// left, every blob and length is right or absent, and all can be made again. A blob is the newest acknowledged one, or
// one that was being saved. A length is the one that was put.
func TestPowerCutAnywhere(t *testing.T) {
	dir := t.TempDir()
	fs := &cutFS{FS: index.OSFS(), dir: dir, disk: diskImage{files: map[int]*image{}, names: map[string]int{}}}
	s := open(t, dir, fs)
	blobs := [][]byte{nil}
	save := func(n int) {
		blob := binary.LittleEndian.AppendUint64(bytes.Repeat([]byte{byte(n)}, n), uint64(n))
		blobs = append(blobs, blob)
		if err := errors.Join(s.Save(shard, "lines", blob), s.Flush()); err != nil {
			t.Fatal(err)
		}
		fs.acked++
	}
	lengths := func(count uint64) *index.Lengths {
		l, err := s.Lengths(shard, transform, count, true)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	save(50)
	l := lengths(crashRecords)
	for r := range uint64(crashRecords) {
		l.Put(r, lengthOf(r))
		l.PutSum(r, ^lengthOf(r)/2)
		if r%8 == 0 {
			fs.mapped(t)
		}
	}
	save(700)
	fs.mapped(t)
	lengths(crashRecords + 1)
	save(20)
	fs.cut("at the end")
	found, absent := 0, 0
	for i, c := range fs.cuts {
		for n, kept := range []int{0, 50, 50, 50, 100} {
			after := t.TempDir()
			c.disk.restore(t, after, kept, rand.New(rand.NewPCG(uint64(i), uint64(n))))
			where := fmt.Sprintf("%s, %d %% kept", c.where, kept)
			if survives(t, after, where, blobs, c.acked) {
				found++
			} else {
				absent++
			}
		}
	}
	t.Logf("%d power cuts, a blob in %d of their disks", len(fs.cuts), found)
	if len(fs.cuts) < 20 || found == 0 || absent == 0 {
		t.Errorf("%d power cuts, found %d, absent %d", len(fs.cuts), found, absent)
	}
}

// TestCutOfABatch cuts the last batch at every byte. The blobs of the batch before are whole, and those of the last one
// are right or absent.
func TestCutOfABatch(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, nil)
	blob := func(i int) []byte { return bytes.Repeat([]byte{byte(i + 1)}, 5*i+1) }
	batch := func(from, to int) int64 {
		for i := from; i < to; i++ {
			save(t, s, millrace.Digest{byte(i)}, "lines", blob(i))
		}
		st, err := os.Stat(filepath.Join(dir, "shards.pack"))
		if err != nil {
			t.Fatal(err)
		}
		return st.Size()
	}
	first := batch(0, 4)
	batch(4, 8)
	whole, err := os.ReadFile(filepath.Join(dir, "shards.pack"))
	if err != nil {
		t.Fatal(err)
	}
	for cut := first; cut <= int64(len(whole)); cut++ {
		after := t.TempDir()
		if err := os.WriteFile(filepath.Join(after, "shards.pack"), whole[:cut], 0o644); err != nil {
			t.Fatal(err)
		}
		s := open(t, after, nil)
		for i := range 8 {
			got, ok := s.Load(millrace.Digest{byte(i)}, "lines")
			if !ok && i < 4 || ok && !bytes.Equal(got, blob(i)) {
				t.Fatalf("cut at %d: blob %d is %v, %v", cut, i, got, ok)
			}
			save(t, s, millrace.Digest{byte(i)}, "lines", blob(i))
		}
		again := open(t, after, nil)
		for i := range 8 {
			if got, ok := again.Load(millrace.Digest{byte(i)}, "lines"); !ok || !bytes.Equal(got, blob(i)) {
				t.Fatalf("cut at %d: blob %d is %v, %v after it was made again", cut, i, got, ok)
			}
		}
	}
}

func survives(t *testing.T, dir, where string, blobs [][]byte, acked int) (found bool) {
	t.Helper()
	s, err := index.Open(dir, index.Options{})
	if err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	defer s.Close()
	got, found := s.Load(shard, "lines")
	switch {
	case found && !bytes.Equal(got, blobs[acked]) && !(acked+1 < len(blobs) && bytes.Equal(got, blobs[acked+1])):
		t.Fatalf("%s: a blob of %d bytes, %d were acknowledged", where, len(got), len(blobs[acked]))
	case !found && acked > 0:
		t.Fatalf("%s: the acknowledged blob is gone", where)
	}
	for _, count := range []uint64{crashRecords, crashRecords + 1} {
		l, err := s.Lengths(shard, transform, count, true)
		if err != nil {
			t.Fatalf("%s: %v", where, err)
		}
		for r := range count {
			if n, ok := l.Get(r); ok && n != lengthOf(r) {
				t.Fatalf("%s: record %d has length %d, not %d", where, r, n, lengthOf(r))
			}
			if sum, ok := l.Sum(r); ok && sum != ^lengthOf(r)/2 {
				t.Fatalf("%s: record %d has checksum %d, not %d", where, r, sum, ^lengthOf(r)/2)
			}
			l.Put(r, lengthOf(r))
			if n, ok := l.Get(r); !ok || n != lengthOf(r) {
				t.Fatalf("%s: record %d cannot be put again", where, r)
			}
		}
	}
	if err := s.Save(millrace.Digest{9}, "lines", blobs[1]); err != nil {
		t.Fatalf("%s: save after the cut: %v", where, err)
	}
	return found
}
