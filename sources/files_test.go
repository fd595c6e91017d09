package sources_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace"
	"millrace/sources"
)

// stutter is a file with short reads.
type stutter struct {
	sources.OpenFile
	missing int64
}

func (s stutter) ReadAt(p []byte, off int64) (int, error) {
	if off >= s.Size()-s.missing {
		return 0, nil
	}
	return s.OpenFile.ReadAt(p[:min(len(p), 3, int(s.Size()-s.missing-off))], off)
}

func TestReader(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("0123456789"), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := sources.OSFS().Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 8)
	if err := sources.ReadFull(stutter{OpenFile: f}, b, 1); err != nil || string(b) != "12345678" {
		t.Fatalf("got %q, %v", b, err)
	}
	if err := sources.ReadFull(stutter{f, 2}, b, 1); !errors.Is(err, millrace.ErrDamaged) ||
		!strings.Contains(err.Error(), path) {
		t.Fatalf("a file that shrank: got %v, want ErrDamaged with its name", err)
	}
	if _, err := sources.OSFS().Open(filepath.Dir(path)); err == nil {
		t.Fatal("opened a directory as a shard")
	}
}
