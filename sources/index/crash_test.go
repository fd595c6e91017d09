package index_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"millrace"
	"millrace/sources/index"
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

func (c *cutFS) CreateTemp(dir string) (index.TempFile, error) {
	c.cut("before a file is made")
	f, err := c.FS.CreateTemp(dir)
	if err != nil {
		return nil, err
	}
	c.disk.next++
	c.disk.files[c.disk.next] = &image{}
	c.name(f.Name(), c.disk.next)
	return cutFile{f, c, c.disk.next}, nil
}

func (c *cutFS) Publish(temp, name string, replace bool) error {
	c.cut("before %s is moved into place", filepath.Base(name))
	from, to := c.disk.lookup(filepath.Base(temp)), c.disk.lookup(filepath.Base(name))
	if replace || to < 0 {
		c.name(name, from)
	}
	c.cut("before the file aside of %s goes", filepath.Base(name))
	c.name(temp, -1)
	return c.FS.Publish(temp, name, replace)
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
	index.TempFile
	fs *cutFS
	id int
}

func (f cutFile) Write(p []byte) (int, error) {
	f.fs.cut("before a write of %d bytes", len(p))
	file := f.fs.disk.files[f.id]
	file.written = append(file.written, p...)
	return f.TempFile.Write(p)
}

func (f cutFile) Reserve(size int64) error {
	f.fs.cut("before %d bytes are reserved", size)
	file := f.fs.disk.files[f.id]
	file.written = append(file.written, make([]byte, size-int64(len(file.written)))...)
	return f.TempFile.Reserve(size)
}

func (f cutFile) Sync() error {
	f.fs.cut("before a file is synced")
	file := f.fs.disk.files[f.id]
	file.synced = bytes.Clone(file.written)
	return f.TempFile.Sync()
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

// TestPowerCutAnywhere cuts the power before every call of a history of blobs and length stores. On each disk that may
// be left, every blob and length is right or absent, and all can be made again. A blob is the newest acknowledged one,
// or one that was being saved. A length is the one that was put.
func TestPowerCutAnywhere(t *testing.T) {
	dir := t.TempDir()
	fs := &cutFS{FS: index.OSFS(), dir: dir, disk: diskImage{files: map[int]*image{}, names: map[string]int{}}}
	s := open(t, dir, fs)
	blobs := [][]byte{nil}
	save := func(n int) {
		blob := binary.LittleEndian.AppendUint64(bytes.Repeat([]byte{byte(n)}, n), uint64(n))
		blobs = append(blobs, blob)
		if err := s.Save(shard, "lines", blob); err != nil {
			t.Fatal(err)
		}
		fs.acked++
	}
	lengths := func(count uint64) *index.Lengths {
		l, err := s.Lengths(shard, transform, count)
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
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := lengths(crashRecords + 1).Close(); err != nil { // it does not fit and is replaced
		t.Fatal(err)
	}
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
	if len(fs.cuts) < 30 || found == 0 || absent == 0 {
		t.Errorf("%d power cuts, found %d, absent %d", len(fs.cuts), found, absent)
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
		l, err := s.Lengths(shard, transform, count)
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
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Save(millrace.Digest{9}, "lines", blobs[1]); err != nil {
		t.Fatalf("%s: save after the cut: %v", where, err)
	}
	return found
}
