package disk_test

import (
	"errors"
	"io"
	"log/slog"
	"slices"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/checkpoint/disk"
	"millrace/checkpoint/disk/disktest"
	"millrace/internal/failpoint"
)

const dir = "/run/journal"

var quiet = slog.New(slog.DiscardHandler)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// put makes a file durable, with its folder.
func put(t *testing.T, d *disk.Disk, path, content string) {
	t.Helper()
	f, err := d.FS().Create(path, vfs.WriteCategoryUnspecified)
	must(t, err)
	_, err = f.Write([]byte(content))
	must(t, errors.Join(err, f.Sync(), f.Close()))
	folder, err := d.FS().OpenDir(d.FS().PathDir(path))
	must(t, err)
	must(t, errors.Join(folder.Sync(), folder.Close()))
}

func read(t *testing.T, d *disk.Disk, path string) string {
	t.Helper()
	f, err := d.FS().Open(path)
	must(t, err)
	b, err := io.ReadAll(f)
	must(t, errors.Join(err, f.Close()))
	return string(b)
}

func list(t *testing.T, d *disk.Disk, dir string) []string {
	t.Helper()
	names, err := d.FS().List(dir)
	must(t, err)
	slices.Sort(names)
	return names
}

// powerCut returns the disk as it is with the synced data alone.
func powerCut(d *disk.Disk) *disk.Disk { return disktest.Crash(d, 0, 1) }

// TestCreation: a folder is a store only once its creation has ended, also after a power cut. A store that was created
// in part is emptied, and one that is whole is left alone.
func TestCreation(t *testing.T) {
	d := disktest.NewMemory()
	must(t, d.MakeDir(dir))
	has := func(want bool) {
		t.Helper()
		if got, err := powerCut(d).HasStore(dir); err != nil || got != want {
			t.Errorf("the folder is a store: %v, %v; want %v", got, err, want)
		}
	}
	begins := func(want bool) {
		t.Helper()
		if fresh, err := d.BeginCreation(dir); err != nil || fresh != want {
			t.Fatalf("begin: %v, %v; want %v", fresh, err, want)
		}
	}
	has(false)
	begins(true)
	put(t, d, dir+"/000001.log", "half")
	has(false)
	d = powerCut(d)
	begins(true)
	if names := list(t, d, dir); slices.Contains(names, "000001.log") {
		t.Errorf("a creation that began again finds %v", names)
	}
	put(t, d, dir+"/000002.log", "whole")
	must(t, d.EndCreation(dir))
	has(true)
	begins(false)
	if got := read(t, powerCut(d), dir+"/000002.log"); got != "whole" {
		t.Errorf("the store has %q", got)
	}
}

// TestReplaceSurvivesAPowerCut: whatever operation fails before a power cut, there is the old store or the copy, whole.
func TestReplaceSurvivesAPowerCut(t *testing.T) {
	cut := errors.New("the power is cut")
	var seen []string
	for last := 0; !slices.Contains(seen, "the end"); last++ {
		memory := disktest.NewMemory()
		must(t, memory.MakeDir(dir))
		put(t, memory, dir+"/store", "old")
		copied, err := memory.BeginCopy(dir)
		must(t, err)
		put(t, memory, copied+"/store", "new")
		acts := 0
		d := disktest.NewFaulty(memory, 0, func(disktest.Act, string) error {
			if acts++; acts > last {
				return cut
			}
			return nil
		})
		err = d.Replace(dir)
		after := powerCut(memory)
		must(t, after.Recover(dir))
		got := read(t, after, dir+"/store")
		seen = append(seen, got)
		switch {
		case err == nil && got == "new":
			seen = append(seen, "the end")
		case err == nil:
			t.Fatalf("after a replacement, the store is %q", got)
		case !errors.Is(err, cut):
			t.Fatal(err)
		}
	}
	if !slices.Contains(seen, "old") || len(seen) < 4 {
		t.Errorf("the stores after power cuts are %q", seen)
	}
}

// TestAnUnfinishedCopyIsNoStore: a copy that was not completed never takes the place of a store.
func TestAnUnfinishedCopyIsNoStore(t *testing.T) {
	d := disktest.NewMemory()
	copied, err := d.BeginCopy(dir)
	must(t, err)
	put(t, d, copied+"/store", "half")
	must(t, d.FS().RemoveAll(dir))
	must(t, d.Recover(dir))
	if _, err := d.FS().Stat(dir); err == nil {
		t.Error("an unfinished copy became the store")
	}
	if _, err := d.BeginCopy(dir); err != nil || len(list(t, d, copied)) != 1 {
		t.Errorf("the next copy begins with %v (%v)", list(t, d, copied), err)
	}
}

// TestIdentity: a folder keeps the name that it was given, through a power cut. A damaged name counts as none.
func TestIdentity(t *testing.T) {
	d := disktest.NewMemory()
	must(t, d.MakeDir(dir))
	if id, err := d.Identity(dir); id != "" || err != nil {
		t.Errorf("an empty folder has the name %q, %v", id, err)
	}
	id, err := d.MakeIdentity(dir)
	must(t, err)
	if again, err := powerCut(d).MakeIdentity(dir); len(id) != 26 || again != id || err != nil {
		t.Errorf("the name is %q, and was %q (%v)", again, id, err)
	}
	put(t, d, dir+"/ID", id+"A")
	if got, err := d.Identity(dir); got != "" || err != nil {
		t.Errorf("a damaged name is read as %q, %v", got, err)
	}
}

// TestTail: the file has the newest index. A missing, short or damaged file has none.
func TestTail(t *testing.T) {
	d := disktest.NewMemory()
	must(t, d.MakeDir(dir))
	index := func(want uint64) {
		t.Helper()
		tail, err := d.OpenTail(dir, true, quiet)
		must(t, err)
		if got, err := tail.Index(); err != nil || got != want {
			t.Errorf("the index is %d, %v; want %d", got, err, want)
		}
		must(t, tail.Close())
	}
	index(0)
	tail, err := d.OpenTail(dir, false, quiet)
	must(t, err)
	tail.Witness(7)
	tail.Witness(1 << 40)
	must(t, tail.Close())
	index(1 << 40)
	whole := read(t, d, dir+"/TAIL")
	put(t, d, dir+"/TAIL", whole[:11])
	index(0)
	put(t, d, dir+"/TAIL", "\x01"+whole[1:])
	index(0)
}

// TestReserve: a write that finds the disk full succeeds with the room of the reserve. Until the reserve is back, the
// store is told so.
func TestReserve(t *testing.T) {
	memory := disktest.NewMemory()
	must(t, memory.MakeDir(dir))
	path := dir + "/BALLAST"
	isFull := func() bool { return false }
	d := disktest.NewFaulty(memory, 4096, func(act disktest.Act, at string) error {
		if act == disktest.Write && isFull() {
			return syscall.ENOSPC
		}
		return nil
	})
	r := d.Reserve(dir, quiet)
	must(t, r.Prepare())
	if info, err := memory.FS().Stat(path); err != nil || info.Size() != 4096 {
		t.Fatalf("the reserve is %v, %v", info, err)
	}
	isFull = func() bool {
		_, err := memory.FS().Stat(path)
		return err == nil
	}
	f, err := r.FS().Create(dir+"/log", vfs.WriteCategoryUnspecified)
	must(t, err)
	if _, err := f.Write([]byte("commit")); err != nil {
		t.Errorf("a write on a full disk with a reserve: %v", err)
	}
	must(t, f.Close())
	isFull = func() bool { return true }
	if err := r.Restore(); !disk.IsFull(err) {
		t.Errorf("the reserve is back on a full disk: %v", err)
	}
	if _, err := memory.FS().Stat(path); err == nil {
		t.Error("a part of the reserve was left on a full disk")
	}
	isFull = func() bool { return false }
	if err := errors.Join(r.Restore(), r.Restore()); err != nil {
		t.Errorf("the disk has room again: %v", err)
	}
	if info, err := memory.FS().Stat(path); err != nil || info.Size() != 4096 {
		t.Errorf("the reserve is %v, %v", info, err)
	}
}

// TestAMarkerNamesADurableFile: no power cut leaves a marker without the file that was created before it.
func TestAMarkerNamesADurableFile(t *testing.T) {
	d := disktest.NewMemory()
	must(t, d.MakeDir(dir))
	fs := d.Reserve(dir, quiet).FS()
	for _, name := range []string{"/MANIFEST-1", "/marker.manifest.1"} {
		f, err := fs.Create(dir+name, vfs.WriteCategoryUnspecified)
		must(t, err)
		must(t, f.Close())
	}
	for seed := range uint64(64) {
		names := list(t, disktest.Crash(d, 50, seed), dir)
		if slices.Contains(names, "marker.manifest.1") && !slices.Contains(names, "MANIFEST-1") {
			t.Fatalf("seed %d left %v", seed, names)
		}
	}
}

// TestFailpoints: each operation of the store's files fails at its point, once.
func TestFailpoints(t *testing.T) {
	d := disktest.NewMemory()
	must(t, d.MakeDir(dir))
	if got := d.WithFailpoints(nil); got != d {
		t.Error("a disk without failpoints is wrapped")
	}
	for point, act := range map[string]func(vfs.FS) error{
		"create": func(fs vfs.FS) error {
			_, err := fs.Create(dir+"/a", vfs.WriteCategoryUnspecified)
			return err
		},
		"write": func(fs vfs.FS) error {
			f, err := fs.OpenReadWrite(dir+"/a", vfs.WriteCategoryUnspecified)
			must(t, err)
			_, err = f.Write([]byte("x"))
			return err
		},
		"sync": func(fs vfs.FS) error {
			f, err := fs.OpenReadWrite(dir+"/a", vfs.WriteCategoryUnspecified)
			must(t, err)
			return f.Sync()
		},
	} {
		fail, err := failpoint.Parse("checkpoint/"+point+"=eio@1", "")
		must(t, err)
		fs := d.WithFailpoints(fail).FS()
		if err := act(fs); !errors.Is(err, syscall.EIO) {
			t.Errorf("%s: %v", point, err)
		}
		if err := act(fs); err != nil {
			t.Errorf("%s for the second time: %v", point, err)
		}
	}
}
