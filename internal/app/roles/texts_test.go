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

// TestTextsLeaveSpace: texts leave a fifth of the blocks that the user of the process can use. Blocks of the
// administrator do not count.
func TestTextsLeaveSpace(t *testing.T) {
	for _, c := range []struct {
		used, free, reserved uint64
		want                 bool
	}{
		{0, 100, 0, true}, {79, 21, 0, true}, {80, 20, 0, false}, {100, 0, 0, false}, {0, 0, 0, false},
		{79, 21, 500, true}, {80, 20, 500, false},
	} {
		fs := unix.Statfs_t{Blocks: c.used + c.free + c.reserved, Bfree: c.free + c.reserved, Bavail: c.free}
		if got := hasSpace(&fs); got != c.want {
			t.Errorf("%+v: texts have space: %v", c, got)
		}
	}
}
