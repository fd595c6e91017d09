package sources

import (
	"log/slog"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"millrace"
	"millrace/sources/index"
)

// fullFS has no room for a file.
type fullFS struct{ index.FS }

func (fullFS) CreateTemp(string) (index.TempFile, error) { return nil, syscall.ENOSPC }

// A run goes on without an index that cannot be kept; whoever makes an index for its own sake hears of it.
func TestAFullIndexDirectory(t *testing.T) {
	spec := Spec{IndexDir: filepath.Join(t.TempDir(), "index")}
	var said strings.Builder
	log := slog.New(slog.NewTextHandler(&said, nil))
	for _, spare := range []bool{false, true} {
		m, err := openMemory(spec, fullFS{index.OSFS()}, spare, log)
		if err != nil {
			t.Fatal(err)
		}
		err = m.blobs.Save(millrace.Digest{1}, "kind", []byte("found out"))
		if (err == nil) != spare {
			t.Errorf("spare %v: %v", spare, err)
		}
		blob, ok := m.blobs.Load(millrace.Digest{1}, "kind")
		if ok != spare || spare && string(blob) != "found out" {
			t.Errorf("spare %v: %q %v", spare, blob, ok)
		}
		if err := m.close(); err != nil {
			t.Error(err)
		}
	}
	if !strings.Contains(said.String(), "no space left") {
		t.Errorf("the log says %q", said.String())
	}
}
