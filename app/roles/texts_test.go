package roles

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFileForTexts: a file for texts leaves no name. Where a file would be in memory, there is none.
func TestFileForTexts(t *testing.T) {
	dir := t.TempDir()
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		t.Fatal(err)
	}
	f, err := openTexts(filepath.Join(dir, "loader-0-1.texts"), slog.New(slog.DiscardHandler))
	if isInMemory(&fs) != (err != nil) || isInMemory(&fs) != (f == nil) {
		t.Fatalf("a file on a file system of type %x: %v", fs.Type, err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) > 0 {
		t.Errorf("the directory has %v, %v", names, err)
	}
	if f, err := openTexts(filepath.Join(dir, "none", "x"), slog.New(slog.DiscardHandler)); f != nil || err == nil {
		t.Error("a file in a directory that does not exist is no error")
	}
}

// TestTextsLeaveSpace: texts leave a fifth of the blocks that the user of the process can use, or 32 GiB if that is
// less. A pod leaves a fifth in any case. Blocks of the administrator do not count.
func TestTextsLeaveSpace(t *testing.T) {
	for _, c := range []struct {
		used, free, reserved uint64 // GiB
		want, wantPod        bool
	}{
		{0, 100, 0, true, true}, {79, 21, 0, true, true}, {80, 20, 0, false, false}, {100, 0, 0, false, false},
		{0, 0, 0, false, false}, {79, 21, 500, true, true}, {80, 20, 500, false, false},
		{127, 33, 0, true, true}, {128, 32, 0, false, false}, {968, 32, 0, false, false},
		{967, 33, 0, true, false}, {900, 100, 500, true, false}, {900, 300, 0, true, true},
		{1 << 30, 1 << 20, 0, true, false}, {1 << 30, 31, 1 << 20, false, false},
	} {
		for _, blocks := range []uint64{1, 1 << 18, 1 << 21} { // of a GiB
			fs := unix.Statfs_t{Frsize: 1 << 30 / int64(blocks), Bsize: 1 << 20, Bavail: c.free * blocks}
			fs.Blocks, fs.Bfree = (c.used+c.free+c.reserved)*blocks, (c.free+c.reserved)*blocks
			if got := hasSpace(&fs, false); got != c.want {
				t.Errorf("%+v in %d blocks: texts have space: %v", c, fs.Blocks, got)
			}
			if got := hasSpace(&fs, true); got != c.wantPod {
				t.Errorf("%+v in %d blocks: texts of a pod have space: %v", c, fs.Blocks, got)
			}
		}
	}
	if hasSpace(&unix.Statfs_t{}, false) {
		t.Error("texts have space in a file system without blocks")
	}
}
